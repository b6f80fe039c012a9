"""A certification planned: how fast votes are cast here, how many the inputs will take, and what that costs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution, usable_cores
from smoothcert.models.numerics import Layout
from smoothcert.smoothing.classifier import ModelClassifier
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import forecast_for, stopping_procedure
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

BYTES_OF_A_RUN = 1 << 14
"""Statement, lock and the empty tables of a journal, about."""
BYTES_OF_A_RECORD = 320
"""Of a record with two tallies of a few classes, about: numbers, checksum, and what SQLite adds."""
BYTES_OF_A_CLASS = 4
"""For each class beyond a few, in both tallies together, about: most counts are a zero and its comma."""
_CLASSES_INCLUDED = 10


@dataclass(frozen=True)
class Work:
    """What the inputs ask of the model."""

    inputs: int
    votes: float
    """Of all inputs, those that choose a class included."""
    rows: float
    """That the model computes: votes, padding, and a pass of each input without noise."""
    passes: float

    @classmethod
    def of(cls, layout: Layout, inputs: int, draws: Iterable[tuple[float, int]]) -> Work:
        """``inputs`` inputs, of which each draws so many votes, so often on average: (times, votes)."""
        drawn = [(times, votes, padded(layout, votes)) for times, votes in draws]
        rows = inputs * (sum(times * full for times, _, full in drawn) + layout.chunk)
        votes = inputs * sum(times * votes for times, votes, _ in drawn)
        return cls(inputs, votes, rows, rows / layout.chunk)


def padded(layout: Layout, votes: int) -> int:
    """Rows that a draw takes: whole passes; whole blocks where a pass has room for those of several inputs."""
    step = min(layout.chunk, layout.block)
    return -(-votes // step) * step


@dataclass(frozen=True)
class Pace:
    """How fast the work goes."""

    rows_per_second: float
    """Of all workers together."""
    start_seconds: float = 0.0
    """Until the first vote."""
    record_seconds: float = 0.0
    """That the process which owns the run needs for a record; it writes while others vote."""

    def seconds(self, work: Work) -> float:
        """The time that the work takes: votes, or records where these are slower."""
        return self.start_seconds + max(work.rows / self.rows_per_second, work.inputs * self.record_seconds)

    def bottleneck(self, work: Work) -> str:
        """Which of the two decides."""
        voting = work.rows / self.rows_per_second
        return "votes" if voting >= work.inputs * self.record_seconds else "records"


def bytes_on_disk(inputs: int, classes: int) -> int:
    """The size of the run, about; without Parquet, logs and pictures made of it later."""
    beyond = max(0, classes - _CLASSES_INCLUDED)
    return BYTES_OF_A_RUN + inputs * (BYTES_OF_A_RECORD + beyond * BYTES_OF_A_CLASS)


LEAST_SECONDS = 1.0
"""That the speed is measured for."""
MOST_PILOT_VOTES = 1000
"""Of each input of a pilot."""
PILOT_SECONDS = 10.0
"""That a pilot may take: of a slow model its inputs get fewer votes."""
_FEWEST_PILOT_VOTES = 64
_SIMULATED = 5  # certifications for each input of a pilot
RECORD_SECONDS = 0.004
"""To write a record so that it outlives a power cut, on a local disk; network file systems take longer."""

Numbered = tuple[int, NDArray[Any]]


@dataclass(frozen=True)
class PilotDraws:
    """What a few inputs' votes say of all of them."""

    inputs: int
    votes: int
    """Of each."""
    draws: tuple[tuple[float, int], ...]
    """What an input draws on average under the stop rules: (times, votes)."""


def measured_rate(
    cast: Callable[[int], float],
    first: int,
    *,
    least: float = LEAST_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Rows a second: ``cast`` casts so many votes and says how many rows that were; more, until it takes a while.

    The first go warms up and isn't counted.
    """
    cast(first)
    votes = first
    while True:
        began = clock()
        rows = cast(votes)
        seconds = clock() - began
        if seconds >= least:
            return rows / seconds
        # Twice as many at least; straight to the goal where that is far off.
        votes *= 2 if seconds <= 0 else max(2, min(64, math.ceil(1.2 * least / seconds)))


def local(execution: Execution) -> Execution:
    """The same with threads of this machine, no more than its cores: what speed is measured with."""
    here = execution.worker_count()
    if execution.device == "cpu":
        here = min(here, usable_cores())
    return replace(execution, backend="threads", workers=here, address=None, gpus_per_worker=0.0)


def paced(classifier: ModelClassifier, inputs: Sequence[Numbered], start_seconds: float) -> Pace:
    """The pace of the workers asked for; those elsewhere are taken to be like those here."""
    asked = classifier.execution
    here = local(asked)
    plan = classifier.prepare(inputs[0][1].shape)
    layout = plan.numerics.layout()
    some = inputs[: max(1, here.worker_count())]

    with classifier.on(here) as voting:

        def cast(votes: int) -> float:
            for _ in voting.cast_each(some, votes):
                pass
            return len(some) * padded(layout, votes)

        rate = measured_rate(cast, layout.chunk)
    workers = asked.worker_count() if asked.elsewhere else here.worker_count()
    return Pace(rate * workers / here.worker_count(), start_seconds, RECORD_SECONDS)


def piloted(
    classifier: ModelClassifier,
    dataset: Dataset,
    inputs: Sequence[Numbered],
    pace: Pace,
    on_votes: Callable[[int], None] | None = None,
) -> PilotDraws:
    """The draws of an average input under the plan's stop rules, from real votes of a few.

    Each input's real votes say which shares its classes may have; certifications with votes drawn from those are
    played through, and what they ask for is counted.
    """
    here = local(classifier.execution)
    affordable = int(PILOT_SECONDS * pace.rows_per_second / len(inputs))
    votes = min(MOST_PILOT_VOTES, max(_FEWEST_PILOT_VOTES, affordable))
    plan = classifier.prepare(inputs[0][1].shape)
    labels = {index: int(dataset.labels[index]) for index, _ in inputs}
    of = dict(inputs)
    asked: Counter[int] = Counter()
    with classifier.on(here) as voting:
        for index, tally in voting.cast_each(inputs, votes, on_votes):
            generator = np.random.default_rng((plan.known_seed, index))
            for _ in range(_SIMULATED):
                asked.update(_played(plan, of[index], index, labels[index], tally, generator))
    times = len(inputs) * _SIMULATED
    draws = tuple((count / times, drawn) for drawn, count in sorted(asked.items()))
    return PilotDraws(len(inputs), votes, draws)


def fixed_draws(plan: CertifyPlan, inputs: int) -> tuple[tuple[float, int], ...]:
    """What an input draws where no vote decides: (times, votes). A total is an even share of it.

    With σ levels the chooser's votes are counted, all that there may be; other levels are looked at for few inputs.
    """
    search: tuple[tuple[float, int], ...] = () if plan.search is None else ((1.0, plan.search.evaluations),)
    if (levels := plan.sigma_levels) is not None and levels.constant is None:
        search = ((1.0, levels.chooser_n0), (1.0, levels.chooser_n))
    if (total := plan.budget.shared_votes) is not None:
        return ((1.0, max(1, total // inputs)), *search)
    return ((1.0, plan.n0), (1.0, plan.n), *search)


def work_of(plan: CertifyPlan, inputs: int, draws: Sequence[tuple[float, int]]) -> Work:
    """The work of a number of inputs that draw so."""
    return Work.of(plan.numerics.layout(), inputs, draws)


def _played(
    plan: CertifyPlan, x: NDArray[Any], index: int, label: int, seen: Tally, generator: np.random.Generator
) -> Iterator[int]:
    """The numbers of votes that one certification asks for, with votes like those seen."""
    shares = generator.dirichlet(np.array(seen.counts) + 1 / len(seen.counts))
    drawn: Counter[Phase] = Counter()
    procedure = stopping_procedure(x, plan, label=label, forecast=forecast_for(plan))
    tally: Tally | None = None
    while True:
        try:
            draw = next(procedure) if tally is None else procedure.send(tally)
        except StopIteration:
            return
        yield draw.votes
        counts = tuple(int(count) for count in generator.multinomial(draw.votes, shares))
        soft = None
        if plan.confidence_bound.votes == "soft":
            soft = tuple(count * SOFT_UNIT for count in counts)
        start = drawn[draw.phase]
        drawn[draw.phase] += draw.votes
        stream = Stream(plan.known_seed, index, draw.phase)
        tally = Tally(stream, start, start + draw.votes, counts, soft, soft)
