"""A certification planned: how fast votes are cast here, and how many the inputs will take. No run is written."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.evaluation.costs import Pace, Work, padded
from smoothcert.sampling import Execution
from smoothcert.sampling.execution import usable_cores
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.adaptive import forecast_for, stopping_procedure
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

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
class Pilot:
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


def paced(classifier: SmoothedClassifier, inputs: Sequence[Numbered], start_seconds: float) -> Pace:
    """The pace of the workers asked for; those elsewhere are taken to be like those here."""
    asked = classifier.execution
    here = local(asked)
    plan = classifier.prepare(inputs[0][1].shape)
    layout = plan.numerics.layout()
    some = inputs[: max(1, here.worker_count())]

    def cast(votes: int) -> float:
        for _ in classifier.on(here).cast_each(some, votes):
            pass
        return len(some) * padded(layout, votes)

    rate = measured_rate(cast, layout.chunk)
    workers = asked.worker_count() if asked.backend == "ray" else here.worker_count()
    return Pace(rate * workers / here.worker_count(), start_seconds, RECORD_SECONDS)


def piloted(
    classifier: SmoothedClassifier,
    dataset: Dataset,
    inputs: Sequence[Numbered],
    pace: Pace,
    on_votes: Callable[[int], None] | None = None,
) -> Pilot:
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
    for index, tally in classifier.on(here).cast_each(inputs, votes, on_votes):
        generator = np.random.default_rng((plan.known_seed, index))
        for _ in range(_SIMULATED):
            asked.update(_played(plan, of[index], index, labels[index], tally, generator))
    times = len(inputs) * _SIMULATED
    return Pilot(len(inputs), votes, tuple((count / times, drawn) for drawn, count in sorted(asked.items())))


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
    plan: CertifyPlan,
    x: NDArray[Any],
    index: int,
    label: int,
    seen: Tally,
    generator: np.random.Generator,
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
