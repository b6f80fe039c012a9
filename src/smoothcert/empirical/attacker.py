"""Attacking the inputs of a run, and judging adversaries by fresh votes; SmoothMix's lines to adversaries.

A smoothed classifier that is far more confident at an adversary that no norm restricts than at the input loses the
input early on the line between them, and with it certified radius (Jeong et al., 2021, sections 3.1 and H). These lines
are pictures of a model, not certificates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.attacks import AttackLimits, at_rest, norms, pgd_path
from smoothcert.bounds.fixed import top_two_p_value
from smoothcert.datasets.base import Dataset
from smoothcert.empirical.results import (
    ATTACKS,
    BY_VOTES,
    NEED_GRADIENTS,
    AttackedInput,
    AttackPlan,
    AttackProgress,
    AttackReport,
    Break,
    LinePlan,
    margins,
)
from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.samples import GradientPasses, ValuePasses, unit_noise
from smoothcert.engine.schedule import BlockBits, Draw, one_draw
from smoothcert.errors import InvalidValueError, ModelError, RunError, check_count, check_positive
from smoothcert.models.adapt import adapt, class_order, difference
from smoothcert.models.base import BaseClassifier, Prepared
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.objectives import BatchNoise, noise_copies
from smoothcert.perturb.base import NOISES, real_noise
from smoothcert.perturb.grid import on_grid
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, check_inputs_of
from smoothcert.runs.statement import ModelStatement, PlanStatement
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import Phase, Stream
from smoothcert.threads import counted_pass, openmp_threads, threads_for

# The certificate is of the open ball; this much of the radius keeps float32 norms of any length inside it.
_ROOM = 1e-5
_NUMBERS_TOGETHER = 1 << 26  # of noise that a worker holds at once


def attack_run(
    run: Run,
    model: Any,
    dataset: Dataset,
    radii: Sequence[float],
    plan: AttackPlan | None = None,
    *,
    execution: Execution | None = None,
    batch: int = 16,
    progress: AttackProgress | None = None,
) -> AttackReport:
    """Attack every input of a certify run at ascending ℓ2 ``radii``, with the model and data it was made with.

    An input is wrong without attack if fresh votes at it show that, and broken at r if fresh votes at an adversary
    closer than r do (:class:`AttackPlan`); what is broken at r stays so beyond. An input that stands isn't shown to be
    right: its votes may be too few to tell.
    Adversaries stay in [0, 1] where the data lie there. To attack fewer inputs, pass a run with fewer records.

    Noise copies and votes follow from the run's seed, the input's index and the radius, whatever else is attacked:
    ``batch``, the number of inputs that a worker attacks together, moves nothing but the last bits of the
    gradients. The votes are cast as the run's were (type, route, shape of a pass), from streams it never used.
    """
    plan, execution, progress = plan or AttackPlan(), execution or Execution(), progress or AttackProgress()
    check_attackable(run)
    check_count("batch", batch)
    radii = tuple(sorted(check_positive("radius", radius) for radius in radii))
    if not radii or len(set(radii)) < len(radii):
        raise InvalidValueError(f"radii must be one or more different numbers, got {list(radii)}")
    base = adapt(model, "hard")
    there, here = run.manifest.model.known(ModelStatement.sha256), base.fingerprint(dataset.input_shape)
    if there != here:
        raise ModelError(
            f"{base.name} is not the model that {run.path} was certified with: its sha256 is {here[:12]}…, the "
            f"run's is {there[:12]}…{difference(run.manifest.model.declared, base.declared)}; give that one with "
            "--model"
        )
    plan = plan.settled(base.name, base.differentiable)
    check_inputs_of(run, dataset)
    attacker = _Attacker(run, base, dataset, radii, plan, execution, batch)
    inputs: list[AttackedInput] = []
    together = batch * execution.worker_count()
    for start in range(0, len(run.records), together):
        for attacked in attacker.attack(list(run.records[start : start + together]), progress.radii):
            inputs.append(attacked)
            progress.attacked(attacked)
    return AttackReport(plan, radii, tuple(inputs), run.manifest.plan.known(PlanStatement.alpha))


def check_attackable(run: Run) -> None:
    """Refuse a run whose smoothed classifier can't be attacked here, with the reason."""
    plan, norm = run.manifest.plan, None
    if run.manifest.kind != "certify":
        raise RunError(
            f"{run.path} is of kind {run.manifest.kind!r} and knows neither its model nor its votes; attack a run "
            "made by smoothcert certify"
        )
    if plan.noise is not None and plan.noise in NOISES:
        norm = NOISES[plan.noise].norm
    reasons = {
        "comes out of a region memory, which answers by what it has stored and not by votes alone; attack the run it "
        "was made from": run.stateful,
        "certifies changes of the coordinates that aren't held, and the attacks move all of them: certify without "
        "--hold": run.manifest.model.held is not None,
        "certifies one classifier whose σ follows the input by levels, and the attacks are on one of a single σ; "
        "certify with --sigma instead of --sigma-levels": plan.sigma_levels is not None,
        f"was certified with {plan.noise} noise in {plan.norm}: the attacks are in l2 and for gaussian noise; certify "
        "with --noise gaussian": norm != "l2",
        f"certifies soft votes ({plan.bound} bound), and an adversary is judged by hard ones: that would be another "
        "classifier; certify with --bound top-two or clopper-pearson": plan.votes != "hard",
    }
    for reason, holds in reasons.items():
        if holds:
            raise RunError(f"{run.path} {reason}")
    run.check_begun()
    if (run.records.sigma != plan.sigma).any():
        raise RunError(
            f"{run.path} chose a σ for each input, and the attacks are on one smoothed classifier for all: its "
            "certificates are about others; certify without --sigma-search"
        )


class _Attacker:
    """A model, ready to be attacked and to vote."""

    def __init__(
        self,
        run: Run,
        base: BaseClassifier,
        dataset: Dataset,
        radii: tuple[float, ...],
        plan: AttackPlan,
        execution: Execution,
        batch: int,
    ) -> None:
        stated = CertifyPlan.from_statement(run.manifest.plan, run.path)
        self.plan, self.radii, self.dataset = plan, radii, dataset
        # Workers elsewhere would have to be started for every radius.
        self.execution = Execution(execution.device, execution.workers)
        self.noise = real_noise(stated.noise, "an attack")
        self.seed, self.grid = stated.known_seed, stated.grid
        self.order = class_order(base, dataset)
        self.prepared: Prepared = replace(
            base.prepare(stated.numerics, dataset.input_shape, execution.main_device), order=self.order
        )
        self.device, self.passes = self._searching(base)
        assert plan.attack is not None  # settled
        assert plan.copies is not None
        self.strategy, self.copies = ATTACKS[plan.attack], plan.copies
        # Many copies of large pictures would not fit: fewer inputs together then, which changes no answer.
        self.batch = max(1, min(batch, _NUMBERS_TOGETHER // (plan.copies * math.prod(dataset.input_shape))))
        self.level = plan.level(len(radii), self.prepared.classes)
        plan.warn_if_hopeless(self.level)
        low, high = dataset.value_range()
        self.clip = low >= 0 and high <= 1

    def _searching(self, base: BaseClassifier) -> tuple[str, GradientPasses | ValuePasses]:
        """Where adversaries are looked for, and the model as a module: itself, or its answers alone."""
        if not isinstance(base, TorchClassifier):
            self.own: Sequence[int] = range(self.prepared.classes)
            return "cpu", ValuePasses(self.prepared, self.execution)
        self.own = range(self.prepared.classes) if self.order is None else self.order
        remedy = f"take the attack {BY_VOTES}, which asks for votes alone"
        return self.execution.main_device, GradientPasses(
            base, self.execution, remedy=remedy if self.plan.attack in NEED_GRADIENTS else None
        )

    def attack(self, records: Sequence[Record], settled: Callable[[int], None]) -> Iterator[AttackedInput]:
        breaks = self._judged(records, self._inputs(records), 0.0)
        settled(len(breaks) * len(self.radii))
        standing = [record for record in records if record.index not in breaks]
        for number, radius in enumerate(self.radii):
            if not standing:
                break
            broken = self._breaks(standing, radius)
            settled(len(standing) + len(broken) * (len(self.radii) - number - 1))
            breaks |= broken
            standing = [record for record in standing if record.index not in broken]
        for record in records:
            yield AttackedInput(record, breaks.get(record.index))

    def _breaks(self, records: Sequence[Record], radius: float) -> dict[int, Break]:
        x = self._inputs(records)

        def attacked(module: nn.Module, start: int) -> Tensor:
            stop = start + self.batch
            return self._adversaries(module, records[start:stop], x[start:stop], radius)

        with self.passes.threads() as pool:
            adversaries = list(self.passes.map(pool, attacked, range(0, len(records), self.batch)))
        points = self._on_grid(x, torch.cat(adversaries))
        distances = norms(points - self._on_grid(x, x))
        inside = distances < radius
        if not bool(inside.all()):
            raise RuntimeError(f"{self.plan.attack} left the ball of radius {radius}: {distances.tolist()}")
        return self._judged(records, points, radius, distances.tolist())

    def _on_grid(self, x: Tensor, adversaries: Tensor) -> Tensor:
        """Adversaries that can be voted on as they are: moved to the grid, each coordinate towards its input."""
        steps = on_grid(self.noise, self.grid, self.dataset.input_shape).steps_per_unit
        center = np.rint(x.double().numpy() * steps)
        moved = np.trunc((adversaries.double() - x.double()).numpy() * steps)
        return torch.from_numpy((center + moved) / steps)

    def _inputs(self, records: Sequence[Record]) -> Tensor:
        return torch.from_numpy(self.dataset.inputs([record.index for record in records]))

    def _judged(
        self,
        records: Sequence[Record],
        points: Tensor,
        radius: float,
        distances: Sequence[float] | None = None,
    ) -> dict[int, Break]:
        """Those of the inputs at whose points fresh votes show the label beaten; without distances, at themselves."""
        draw, seed = Draw(Phase.PREDICTION, self.plan.n), _seed("votes", self.seed, radius)
        with Engine(self.execution) as engine:
            model = NoisyModel(engine, self.prepared, "hard", seed, self.grid)
            jobs = (
                model.job(record.index, point.numpy(), self.noise, one_draw(draw))
                for record, point in zip(records, points)
            )
            tallies = {done.job.index: done.answer for done in model.run(jobs)}
        breaks = {}
        for record, distance in zip(records, distances or [0.0] * len(records)):
            votes = tallies[record.index].counts
            rival, p_value = strongest_rival(votes, record.label)
            if p_value <= self.level:
                breaks[record.index] = Break(radius, distance, rival, votes, p_value)
        return breaks

    def _adversaries(self, module: nn.Module, records: Sequence[Record], x: Tensor, radius: float) -> Tensor:
        """The most promising candidate for each input, strictly inside the ball around it."""
        device = self.device
        labels = torch.tensor([self.own[record.label] for record in records], device=device)
        near = x.to(device)
        limits: AttackLimits = {"epsilon": radius * (1 - _ROOM), "steps": self.plan.steps, "clip": self.clip}
        candidates = [
            points
            for restart in range(self.plan.restarts)
            for points in self.strategy(module, near, labels, self._copies(records, radius, restart), limits)
        ]
        if len(candidates) == 1:
            return candidates[0].cpu()
        fresh = self._copies(records, radius, self.plan.restarts)
        scores = torch.stack([margins(module, points, labels, fresh) for points in candidates])
        return torch.stack(candidates)[scores.argmin(0), torch.arange(len(x), device=device)].cpu()

    def _copies(self, records: Sequence[Record], radius: float, restart: int) -> Tensor:
        """Noise copies of shape (copies, inputs, …), each input's from a generator of its own."""
        bits, seed = BlockBits(), _seed("copies", self.seed, radius)
        shape = (self.copies, *self.dataset.input_shape)
        states = (bits.seek(Stream(seed, record.index, Phase.PREDICTION), restart) for record in records)
        copies = torch.stack([unit_noise(self.noise, shape, torch.float32, state) for state in states])
        return copies.mul_(self.noise.sigma).transpose(0, 1).to(self.device)


def strongest_rival(votes: Sequence[int], label: int) -> tuple[int, float]:
    """The class other than ``label`` with the most votes, and how surprising its lead would be if it led by chance.

    The p-value is of the one-sided exact binomial test of the rival against the label: 1 unless it is ahead.
    """
    rival = max((c for c in range(len(votes)) if c != label), key=votes.__getitem__)
    if votes[rival] <= votes[label]:
        return rival, 1.0
    # The test of the two classes ahead is two-sided by doubling; halving is exact.
    return rival, top_two_p_value(votes[rival], votes[label]) / 2


def _seed(purpose: str, seed: int, radius: float) -> int:
    """Names streams of this purpose and radius, none of which any run has drawn from."""
    key = f"smoothcert attack 1|{purpose}|{seed}|{radius.hex()}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big")


@dataclass(frozen=True)
class ConfidenceLine:
    """One input's votes on the line to its adversary; ``shares`` has a row of class shares for each ratio.

    ``adversary`` has the shape of an input; a line that was made by hand may do without.
    """

    index: int
    label: int
    distance: float
    ratios: NDArray[np.float64]
    shares: NDArray[np.float64]
    adversary: NDArray[np.float32] | None = None

    @property
    def rival(self) -> int:
        """The class ahead at the adversary, other than the label."""
        end = self.shares[-1].copy()
        end[self.label] = -1
        return int(end.argmax())

    @property
    def right(self) -> bool:
        """Whether the label is ahead at the input itself."""
        return int(self.shares[0].argmax()) == self.label

    @property
    def equal_confidence_ratio(self) -> float | None:
        """The smallest mixing ratio at which another class draws level with the label; None if none does.

        Interpolated between the two ratios that enclose it. 0 for an input that is wrong to begin with.
        """
        label = self.shares[:, self.label]
        margin = label - np.delete(self.shares, self.label, axis=1).max(axis=1)
        lost = np.flatnonzero(margin <= 0)
        if not len(lost):
            return None
        after = int(lost[0])
        if after == 0:
            return 0.0
        before = after - 1
        part = margin[before] / (margin[before] - margin[after])
        return float(self.ratios[before] + part * (self.ratios[after] - self.ratios[before]))


def confidence_lines(
    model: nn.Module,
    dataset: Dataset,
    indices: Sequence[int],
    plan: LinePlan,
    on_input: Callable[[], None] | None = None,
) -> list[ConfidenceLine]:
    """The line of each chosen input; draws come from streams of its own, whichever inputs are chosen."""
    if not indices:
        raise InvalidValueError("choose at least one input to diagnose, got none")
    lines = []
    with at_rest(model):
        _, work = counted_pass(model, torch.from_numpy(dataset.inputs([indices[0]])))
    with openmp_threads(threads_for(plan.votes * work)):
        for index in indices:
            lines.append(_line(model, dataset, index, plan))
            if on_input is not None:
                on_input()
    return lines


def _line(model: nn.Module, dataset: Dataset, index: int, plan: LinePlan) -> ConfidenceLine:
    words = [plan.seed, index]
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(words).generate_state(1)[0]))
    x = torch.from_numpy(dataset.inputs([index]))
    label = int(dataset.labels[index])
    y = torch.tensor([label])
    noise = noise_copies(x, BatchNoise(plan.sigma), plan.copies, generator)
    adversary = pgd_path(model, x, y, noise, steps=plan.steps, step_size=plan.step_size, clip=plan.clip)[-1]
    ratios = np.linspace(0.0, 1.0, plan.points)
    with at_rest(model), torch.inference_mode():
        shares = [_shares(model, torch.lerp(x, adversary, float(ratio)), plan, generator) for ratio in ratios]
    distance = float(norms(adversary - x)[0])
    return ConfidenceLine(index, label, distance, ratios, np.stack(shares), adversary[0].numpy())


def _shares(
    model: nn.Module, x: Tensor, plan: LinePlan, generator: torch.Generator, rows: int = 250
) -> NDArray[np.float64]:
    """The share of noisy votes that each class gets at one point."""
    counts = None
    for start in range(0, plan.votes, rows):
        copies = x.expand(min(rows, plan.votes - start), *x.shape[1:])
        logits = model(copies + noise_copies(copies, BatchNoise(plan.sigma), 1, generator)[0])
        votes = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
        counts = votes if counts is None else counts + votes
    assert counts is not None
    return (counts.double() / plan.votes).numpy()
