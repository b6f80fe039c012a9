"""A classifier with σ levels whose votes are taped: each is cast once, whichever choosers are compared by it.

The v-th vote of a stream is always the same draw, and a stage's streams follow from the seed alone. So the votes at a
level are the same for every chooser that looks at it, and what a chooser would have seen is read off the tape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.sampling import Draw, Job, Prepared, Procedure
from smoothcert.smoothing import CertifyPlan
from smoothcert.smoothing.level_plans import chooser_plan, home_plan, levels_of
from smoothcert.smoothing.level_stages import Stages, Underway
from smoothcert.smoothing.levelled import LevelledClassifier
from smoothcert.smoothing.voting import engine_for
from smoothcert.tally import Phase, Stream, Tally

R = TypeVar("R")
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Tape:
    """All votes of one input in one stage: of selection, and after each block of estimation (0 blocks first)."""

    seed: int
    index: int
    point: str
    """Hash of the point that the votes are about."""
    block: int
    selection: Counts
    estimation: Counts

    def tally(self, phase: Phase, start: int, stop: int) -> Tally:
        """Votes ``start`` to ``stop`` of a phase."""
        chosen = phase == Phase.SELECTION
        counts = self.selection if chosen else self._until(stop) - self._until(start)
        return Tally(Stream(self.seed, self.index, phase), start, stop, tuple(int(count) for count in counts))

    def _until(self, votes: int) -> Counts:
        row = -(-votes // self.block)
        counts = self.estimation[row]
        if int(counts.sum()) != votes:
            raise ValueError(f"the tape of input {self.index} isn't cut after {votes} votes")
        return np.asarray(counts)


@dataclass
class Shelf:
    """Tapes by stage and input; in a folder, if there is one, so that another run needn't cast them again."""

    folder: Path | None = None
    models: dict[int, str] = field(default_factory=dict)
    """What votes in the stage of each seed."""
    tapes: dict[tuple[str, int], Tape] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def name(self, plan: CertifyPlan) -> str:
        """Of a stage: what its votes follow from."""
        stated = f"{self.models[plan.known_seed]}|{plan.as_json()}"
        return f"{plan.noise.sigma:g}-{hashlib.sha256(stated.encode()).hexdigest()[:16]}"

    def cast(
        self, plan: CertifyPlan, prepared: Prepared, points: dict[int, NDArray[Any]], stages: Stages
    ) -> dict[int, Tape]:
        """The tapes of these inputs; those that aren't there yet are made."""
        plan = _taped(plan)
        stage = self.name(plan)
        self._load(stage, plan.known_seed)
        block = plan.numerics.layout().block
        jobs = [
            Job(index, point, plan.noise, _taping(plan, block))
            for index, point in points.items()
            if (stage, index) not in self.tapes
        ]
        for done in engine_for(plan, prepared, stages.execution).run(jobs):
            index = done.job.index
            self.tapes[stage, index] = Tape(plan.known_seed, index, _hash(done.job.x), block, *done.answer)
        if jobs:
            self._save(stage)
        for index, point in points.items():
            if self.tapes[stage, index].point != _hash(point):
                raise ValueError(f"the tape of input {index} is about another point: choosers' grids differ")
        return {index: self.tapes[stage, index] for index in points}

    def _load(self, stage: str, seed: int) -> None:
        if self.folder is None or stage in self.read or not (path := self.folder / f"{stage}.npz").exists():
            return
        self.read.add(stage)
        with np.load(path) as file:
            block = int(file["block"])
            columns = (file[name] for name in ("indices", "points", "selection", "estimation"))
            for index, point, chosen, counts in zip(*columns, strict=True):
                self.tapes[stage, int(index)] = Tape(seed, int(index), str(point), block, chosen, counts)

    def _save(self, stage: str) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = [tape for (of, _), tape in sorted(self.tapes.items()) if of == stage]
        part = self.folder / f"{stage}.part.npz"
        np.savez_compressed(
            part,
            block=kept[0].block,
            indices=[tape.index for tape in kept],
            points=[tape.point for tape in kept],
            selection=np.stack([tape.selection for tape in kept]),
            estimation=np.stack([tape.estimation for tape in kept]),
        )
        part.replace(self.folder / f"{stage}.npz")


def _hash(point: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(point, dtype=np.float64).tobytes()).hexdigest()[:16]


def _taped(plan: CertifyPlan) -> CertifyPlan:
    """The plan without what doesn't change its votes, so that the same ones are found again."""
    return replace(plan, alpha=0.5, bound="clopper-pearson", stop=())


def _taping(plan: CertifyPlan, block: int) -> Procedure[tuple[Counts, Counts]]:
    selection = yield Draw(Phase.SELECTION, plan.n0)
    rows = [np.zeros(len(selection.counts), dtype=np.int64)]
    for start in range(0, plan.n, block):
        tally = yield Draw(Phase.ESTIMATION, min(block, plan.n - start))
        rows.append(rows[-1] + np.array(tally.counts))
    return np.array(selection.counts), np.stack(rows)


@dataclass(frozen=True)
class TapedStages(Stages):
    """Stages that read votes off their tapes."""

    shelf: Shelf = field(kw_only=True)

    def _each(
        self,
        plan: CertifyPlan,
        prepared: Prepared,
        together: list[Underway],
        procedure: Callable[[Underway], Procedure[R]],
    ) -> Iterator[tuple[Underway, R]]:
        if not together:
            return
        tapes = self.shelf.cast(plan, prepared, {one.index: one.point for one in together}, self)
        for one in together:
            yield one, replayed(procedure(one), tapes[one.index])


def replayed(procedure: Procedure[R], tape: Tape) -> R:
    """What a procedure finds where every draw is read off the tape."""
    drawn: dict[Phase, int] = {}
    draw = next(procedure)
    while True:
        start = drawn.get(draw.phase, 0)
        drawn[draw.phase] = start + draw.votes
        try:
            draw = procedure.send(tape.tally(draw.phase, start, start + draw.votes))
        except StopIteration as stop:
            found: R = stop.value
            return found


class TapedClassifier(LevelledClassifier):
    """The same certificates as its base class has, from a shelf of tapes. Inputs must be numbered."""

    shelf: Shelf

    def _made_stages(self, shape: tuple[int, ...]) -> Stages:
        stages = super()._made_stages(shape)
        levels = levels_of(stages.plan)
        for level in stages.levels if levels.constant is None else [levels.constant]:
            base = self.bases[level if len(self.bases) > 1 else 0]
            self.shelf.models[home_plan(stages.plan, level).known_seed] = base.fingerprint(shape)
        if levels.chooser_sha256 is not None:
            self.shelf.models[chooser_plan(stages.plan).known_seed] = levels.chooser_sha256
        return TapedStages(stages.plan, stages.prepared, stages.chooser, stages.execution, shelf=self.shelf)
