"""A chooser fitted into a directory: pilot votes at every level, a network trained on them, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from smoothcert.architectures.base import WEIGHTS_NAME
from smoothcert.architectures.spec import ModelSpec, initialise, normalisation_for
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.bounds.base import Bound, ClassBounds, one_sided
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.experimental.levels.choosers import (
    LevelFitPlan,
    level_names,
    read_chooser_fields,
    write_chooser_statement,
)
from smoothcert.experimental.levels.procedures import combined_radius, median_level, reaches, stage_seed
from smoothcert.models.adapt import labelled_for
from smoothcert.models.base import BaseClassifier
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import claim_run, inputs_fitted_on
from smoothcert.smoothing.classifier import OnVotes, SmoothedClassifier
from smoothcert.smoothing.fits.objective import FitProgress, FitPurpose, Streams, label_votes, shrunk_share
from smoothcert.tally import Phase, Stream, Tally
from smoothcert.threads import counted_pass, openmp_threads, threads_for

LEAST_SHARE = 1e-4
"""Shares of levels are kept so far from 0 and 1: beyond it no affordable number of votes shows a longer reach."""


def expected_radius(shares: Tensor, radii: Tensor) -> Tensor:
    """Σ_k share_k·radius_k: in doubt it is largest at the level that is best on average."""
    return (shares * radii).sum(-1)


def combined_radii(shares: Tensor, radii: Tensor, noise: Noise) -> Tensor:
    """min over levels of max(reach, radius), from each row's shares of levels and its radius at each.

    As ``procedures.combined_radius`` has it, with a gradient in the shares: where the chooser limits the radius, its
    shares grow clearer.
    """
    below = shares.cumsum(-1) - shares
    above = 1 - below - shares
    scale = noise.smallest_sigma * noise.semi_axis

    def reach(share: Tensor) -> Tensor:
        gap: Tensor = noise.soft_gap(share.clamp(LEAST_SHARE, 1 - LEAST_SHARE))
        return scale * gap.clamp(min=0.0)

    up, down = torch.maximum(reach(below), radii), torch.maximum(reach(above), radii)
    found = [
        torch.cat((down[..., :home], radii[..., home : home + 1], up[..., home + 1 :]), -1).amin(-1)
        for home in range(shares.shape[-1])
    ]
    # The median is the home for which it is largest: any other has the median's own level without a reach.
    return torch.stack(found, -1).amax(-1)


_STREAMS = 0x6C6576656C  # keeps streams apart from those of training and of fits of noise
_LENET_SIDE = 16
_LEANING = 2.0  # e² times as likely as any other level


def chosen_inputs(indices: range, plan: LevelFitPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions to fit on and positions kept apart, drawn by the seed."""
    return Streams(plan.seed, _STREAMS).split(indices, plan.validation, plan.inputs)


def chooser_spec(dataset: Dataset, plan: LevelFitPlan, start: ModelSpec | None = None) -> ModelSpec:
    """A network with an output for each level: a small one, or that of the model that it starts from."""
    shape = dataset.input_shape
    if start is not None:
        if start.input_shape != shape or plan.network not in (None, start.architecture):
            wanted = plan.network or start.architecture
            raise ModelError(
                f"the chooser is {wanted} for inputs of shape {shape}: it can't start from {start.architecture} for "
                f"{start.input_shape}"
            )
        return replace(start, classes=level_names(plan.sigmas))
    large = len(shape) == 3 and min(shape[1:]) >= _LENET_SIDE
    mean, std = normalisation_for(dataset.name, shape[0]) or (None, None)
    network = plan.network or ("lenet" if large else "small-cnn")
    return ModelSpec(network, shape, level_names(plan.sigmas), mean, std)


def fitted_chooser(
    spec: ModelSpec,
    dataset: Dataset,
    indices: NDArray[np.int64],
    radii: NDArray[np.float64],
    plan: LevelFitPlan,
    progress: FitProgress | None = None,
    start: nn.Module | None = None,
) -> nn.Module:
    """A network that gives each noisy input a level, so that the whole classifier's radius is large.

    Two sums are climbed together. The expected radius leaves a level for another where that gains on average; the
    radius that G would have (min over levels of max(reach, radius)) makes the votes as clear as reaches have to be.
    The same seed gives the same weights on one machine's processor. ``start``: a trained network of the same
    architecture, of which all but the last layer is taken over.
    """
    model, progress = initialise(spec, plan.seed), progress or FitProgress()
    if start is not None:
        _take_over(model, start)
    _lean(model, int(radii.mean(axis=0).argmax()))
    noise = NOISES[plan.noise](plan.noise_sigma)
    streams, goal = Streams(plan.seed, _STREAMS), torch.from_numpy(radii).float()
    _, work = counted_pass(model.eval(), torch.from_numpy(dataset.inputs(indices[:1])))
    with openmp_threads(threads_for(work * plan.batch * plan.copies)):
        optimizer = Adam(model.parameters(), plan.lr)
        schedule = CosineAnnealingLR(optimizer, plan.epochs * math.ceil(len(indices) / plan.batch))
        model.train()
        for epoch in range(plan.epochs):
            draws = streams.generator(FitPurpose.NOISE, epoch)
            order = torch.from_numpy(streams.permutation(len(indices), FitPurpose.SHUFFLE, epoch))
            for rows in torch.split(order, plan.batch):
                x = torch.from_numpy(dataset.inputs(indices[rows.numpy()]))
                unit = torch.empty(plan.copies, *x.shape, dtype=x.dtype)
                NOISES[plan.noise].fill(unit, draws)
                logits = model((x + plan.noise_sigma * unit).flatten(0, 1))
                shares = logits.reshape(plan.copies, len(x), -1).softmax(-1).mean(0)
                loss = -(
                    combined_radii(shares, goal[rows], noise) + expected_radius(shares, goal[rows])
                ).mean()
                if not bool(torch.isfinite(loss)):
                    raise ModelError(
                        f"the chooser's loss became {float(loss.detach())} in epoch {epoch + 1}: try a learning rate "
                        f"below {plan.lr:g}"
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                progress.rows(plan.copies * len(x))
            progress.epoch(epoch)
    return model.eval()


def _take_over(model: nn.Module, start: nn.Module) -> None:
    """Give a network the weights of another one of its architecture, all but those of the last layer."""
    own, taken = model.state_dict(), start.state_dict()
    other = [name for name, value in own.items() if value.shape != taken[name].shape]
    last = _last_layer(model)
    if last is None or any(name.rpartition(".")[0] != last for name in other):
        raise ModelError(
            f"the chooser can't start from {type(start).__name__}: its classes aren't the outputs of a last linear "
            "layer"
        )
    kept = {name: value for name, value in own.items() if name.rpartition(".")[0] == last}
    model.load_state_dict(taken | kept)


@torch.no_grad()
def _lean(model: nn.Module, level: int) -> None:
    """Begin near the level that is best for all inputs: leaving it has to be learnt, not unlearnt."""
    if (last := _last_layer(model)) is not None:
        layer = model.get_submodule(last)
        if isinstance(layer.bias, Tensor) and level < len(layer.bias):
            layer.bias[level] += _LEANING


def _last_layer(model: nn.Module) -> str | None:
    """The name of the last linear layer, which gives the logits of the usual networks."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    return names[-1] if names else None


KIND = "fit-levels"


def counted_votes(
    base: BaseClassifier,
    dataset: Dataset,
    indices: NDArray[np.int64],
    noise: Noise,
    votes: int,
    seed: int,
    execution: Execution,
    on_votes: OnVotes | None = None,
) -> NDArray[np.int64]:
    """How often each class was voted for, a row for each of ``indices``. Pilots' votes: they certify nothing."""
    smoothed = SmoothedClassifier(base, sigma=noise.sigma, noise=noise.name, seed=seed, execution=execution)
    inputs = ((int(index), dataset.input(int(index))) for index in indices)
    found = dict(smoothed.cast_each(inputs, votes, on_votes))
    return np.array([found[int(index)].counts for index in indices], dtype=np.int64)


def label_radii(counts: NDArray[np.int64], labels: NDArray[np.int64], noise: Noise) -> NDArray[np.float64]:
    """The radius that the votes' shares would give each row's label if they were probabilities; 0 where it loses."""
    for_label, for_rival, n = label_votes(counts, labels)
    gap = noise.soft_gap(shrunk_share(for_label, n), shrunk_share(for_rival, n))
    return np.asarray(noise.smallest_sigma * noise.semi_axis * np.maximum(gap, 0.0))


def radii_by_level(
    models: Sequence[BaseClassifier],
    dataset: Dataset,
    indices: NDArray[np.int64],
    plan: LevelFitPlan,
    execution: Execution,
    on_votes: OnVotes | None = None,
) -> NDArray[np.float64]:
    """A row for each input, a column for each level. ``models``: one for all levels, or one for each."""
    columns = []
    for level, sigma in enumerate(plan.sigmas):
        base, noise = models[level if len(models) > 1 else 0], NOISES[plan.noise](sigma)
        seed = stage_seed(plan.seed, f"fit level {level}")
        counts = counted_votes(base, dataset, indices, noise, plan.votes, seed, execution, on_votes)
        columns.append(label_radii(counts, labelled_for(base, dataset).labels[indices], noise))
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class LevelReport:
    """Mean radii of the label, as votes of a pilot show them: estimates, not certificates."""

    inputs: int
    fixed: tuple[float, ...]
    """At each level for all inputs."""
    chooser: float
    """Of the classifier whose level is the chooser's median: how far the median stays is counted."""
    homes: float
    """At the chooser's levels, if the median could be trusted to stay: what an unsure chooser costs is the rest."""
    ceiling: float
    """At each input's best level, which no chooser knows."""
    shares: tuple[float, ...]
    """Of the inputs, which level they get."""
    gain_error: float
    """Standard error of the gain."""

    @property
    def best(self) -> int:
        """The level that is best for all inputs."""
        return max(range(len(self.fixed)), key=self.fixed.__getitem__)

    @property
    def gain(self) -> float:
        """Over the best fixed level."""
        return self.chooser - self.fixed[self.best]

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> LevelReport:
        """The inverse of :meth:`as_json`."""
        lists: dict[str, Any] = {name: tuple(one) for name, one in fields.items() if isinstance(one, list)}
        return cls(**(fields | lists))


def reported(counts: NDArray[np.int64], radii: NDArray[np.float64], noise: Noise) -> LevelReport:
    """From the chooser's votes and the radii at every level, a row for each input; ``noise`` is the chooser's."""

    def share(tally: Tally, chosen: int, _alpha: float) -> ClassBounds:
        return one_sided(float(shrunk_share(np.asarray(tally.counts[chosen]), tally.n)))

    estimate = Bound("shares", "hard", False, "no bound: the shares themselves, for estimates", share)
    homes: list[int] = []
    combined = []
    for votes, own in zip(counts, radii):
        tally = Tally(Stream(0, 0, Phase.PILOT), 0, int(votes.sum()), tuple(votes.tolist()))
        homes.append(median_level(tally))
        reached = reaches(tally, homes[-1], noise, estimate, 0.5, 0.0)
        combined.append(combined_radius(reached, own.tolist()))
    found, fixed = np.array(combined), radii.mean(axis=0)
    gains = found - radii[:, fixed.argmax()]
    return LevelReport(
        len(radii),
        tuple(fixed.tolist()),
        float(found.mean()),
        float(radii[np.arange(len(radii)), homes].mean()),
        float(radii.max(axis=1).mean()),
        tuple((np.bincount(homes, minlength=radii.shape[1]) / len(homes)).tolist()),
        float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
    )


def fit_levels_into(
    out: Path,
    models: Sequence[BaseClassifier],
    dataset: Dataset,
    plan: LevelFitPlan,
    indices: range | None = None,
    execution: Execution | None = None,
    progress: FitProgress | None = None,
    origin: dict[str, Any] | None = None,
    start: Path | None = None,
) -> LevelReport:
    """Fit a chooser for ``models`` (one for all levels, or one for each) in ``out``; nothing to do if it is there.

    The directory is a model of levels like any other once it is finished. A kill before that leaves nothing that could
    be taken for one: what makes it a model, the description of the weights, is written last. Another plan, model or
    data set is refused. ``start``: a trained model whose network, all but its last layer, the chooser starts from.
    """
    execution, progress = execution or Execution(), progress or FitProgress()
    indices = range(len(dataset)) if indices is None else indices
    if len(models) not in (1, len(plan.sigmas)):
        raise InvalidValueError(
            f"give one model or one for each of {len(plan.sigmas)} levels, got {len(models)}"
        )
    fitted, kept = chosen_inputs(indices, plan)
    if (out / WEIGHTS_NAME).exists() and not RunFiles(out).statement.exists():
        raise RunError(f"{out} holds {WEIGHTS_NAME} of something else: choose another --out")
    begun, begun_spec = (None, None) if start is None else load_model(start)
    spec = chooser_spec(dataset, plan, begun_spec)
    shape = dataset.input_shape
    named = [{"name": base.name, "sha256": base.fingerprint(shape)} for base in models]
    manifest = Manifest.of(
        kind=KIND,
        plan=plan.as_json() | {"device": execution.device_kind},
        model={
            "name": ", ".join(dict.fromkeys(one["name"] for one in named)),
            "sha256s": [one["sha256"] for one in named],
            **({} if begun is None else {"start_sha256": TorchClassifier(begun).fingerprint(shape)}),
        },
        data=inputs_fitted_on(dataset, indices),
        origin=origin,
    ).made_now()
    with claim_run(out, manifest):
        if (done := _finished(out)) is not None:
            return done
        drawn_inputs = np.concatenate((fitted, kept))
        cast = plan.votes * (len(plan.sigmas) * len(drawn_inputs) + len(kept))
        progress.begin(cast + plan.epochs * plan.copies * len(fitted), plan.epochs, 0)
        radii = radii_by_level(models, dataset, drawn_inputs, plan, execution, progress.rows)
        chooser = fitted_chooser(spec, dataset, fitted, radii[: len(fitted)], plan, progress, begun)
        noise = NOISES[plan.noise](plan.noise_sigma)
        seed, voter = stage_seed(plan.seed, "fit chooser"), TorchClassifier(chooser, spec.architecture)
        counts = counted_votes(voter, dataset, kept, noise, plan.votes, seed, execution, progress.rows)
        report = reported(counts, radii[len(fitted) :], noise)
        about = {
            "noise": plan.noise,
            "models": named,
            "data": {"name": dataset.name, "sha256": dataset.fingerprint()},
            "report": report.as_json(),
        }
        write_chooser_statement(out, plan.sigmas, plan.noise_sigma, about)
        save_model(chooser, spec, out)
    return report


def _finished(out: Path) -> LevelReport | None:
    try:
        load_model(out)
        fields = read_chooser_fields(out)
        return None if fields is None else LevelReport.from_json(fields["report"])
    except (ModelError, KeyError, TypeError):
        return None
