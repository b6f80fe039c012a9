"""Probabilities of false answers, summed over everything that votes can be, and checks of a promised rate.

A check raises TooOftenError when a promise is broken; test_bounds_hold.py shows that it does.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from smoothcert.bounds.base import ClassBounds
from smoothcert.engine.schedule import Procedure
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)
FALSE_ALARM = 1e-6  # probability that a check fails although the promise holds
Rule = Callable[[Tally, int, float], ClassBounds]


class TooOftenError(AssertionError):
    """A promise fails more often than it may."""


class WastefulError(AssertionError):
    """A promise is kept at a higher price than it needs."""


def assert_rate_within(failures: int, trials: int, alpha: float) -> None:
    """Fails if so many failures would be a one-in-a-million accident at rate ``alpha``."""
    if stats.binom.sf(failures - 1, trials, alpha) <= FALSE_ALARM:
        raise TooOftenError(f"{failures} failures in {trials} trials at alpha = {alpha}")


def assert_rate_not_below(failures: int, trials: int, least: float) -> None:
    """Fails if so few failures would be a one-in-a-million accident at rate ``least``: the bound is wasteful."""
    if stats.binom.cdf(failures, trials, least) <= FALSE_ALARM:
        raise WastefulError(f"{failures} failures in {trials} trials, expected a share of {least}")


def hard_tally(counts: Sequence[int], stream: Stream = STREAM) -> Tally:
    return Tally(stream, 0, int(sum(counts)), tuple(int(c) for c in counts))


def soft_tally(probabilities: np.ndarray, stream: Stream = STREAM) -> Tally:
    """A tally of rows of probabilities, rounded as the engine rounds."""
    counts = np.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])
    sums = np.floor(probabilities * SOFT_UNIT).astype(np.int64).sum(0)
    squares = np.ceil(probabilities**2 * SOFT_UNIT).astype(np.int64).sum(0)
    values = (tuple(int(v) for v in row) for row in (counts, sums, squares))
    return Tally(stream, 0, len(probabilities), *values)


def exact_miss_rate(lower_bound: Callable[[int], float], n: int, p: float) -> float:
    """P[L(K) > p] for K ~ Binomial(n, p), summed exactly: no simulation."""
    misses = [k for k in range(n + 1) if lower_bound(k) > p]
    return float(sum(stats.binom.pmf(misses, n, p))) if misses else 0.0


def assert_exact_lower_coverage(lower_bound: Callable[[int], float], n: int, alpha: float) -> None:
    """The miss rate peaks just below each value the bound can take: there it must reach α, and never pass it."""
    for k in range(1, n + 1):
        p = lower_bound(k) * (1 - 1e-9)
        rate = exact_miss_rate(lower_bound, n, p)
        if rate > alpha * (1 + 1e-6):
            raise TooOftenError(f"misses with probability {rate} > {alpha} at p = {p}")
        if rate < alpha * (1 - 1e-4):
            raise WastefulError(f"misses with probability {rate} < {alpha} at p = {p}")


NEGLIGIBLE = 1e-9
"""Outcomes of a draw that are less likely are left out; what is left out in all is added to every rate of errors."""
Answers = list[tuple[float, Any]]
"""Every answer that a procedure can give, with its probability."""


def exact_answers(
    procedure: Callable[[], Procedure[Any]],
    p: float,
    *,
    selected: int | None = None,
    soft: tuple[float, float] | None = None,
) -> tuple[Answers, float]:
    """Every answer of a procedure whose votes are for class 0 of two with probability p, and the probability left out.

    ``selected``: all selection votes are for that class. Errors have to be rare whichever class was chosen, so that how
    it was chosen needs no summing. ``soft``: the probability of class 0 in a vote for it, and in the others.
    Paths that meet in the same counts are merged: what a procedure asks next may depend on nothing else.
    """
    paths: dict[tuple[tuple[int, ...], ...], tuple[float, list[Tally]]] = {(): (1.0, [])}
    answers: Answers = []
    left_out = 0.0
    while paths:
        continued: dict[tuple[tuple[int, ...], ...], tuple[float, list[Tally]]] = {}
        for probability, path in paths.values():
            draw, answer = replayed(procedure(), path)
            if draw is None:
                answers.append((probability, answer))
                continue
            start = sum(tally.n for tally in path if tally.stream.phase == draw.phase)
            if draw.phase == Phase.SELECTION and selected is not None:
                outcomes = [(draw.votes if selected == 0 else 0, 1.0)]
            else:
                chances = probability * stats.binom.pmf(np.arange(draw.votes + 1), draw.votes, p)
                likely = np.flatnonzero(chances > NEGLIGIBLE)
                left_out += float(chances.sum() - chances[likely].sum())
                outcomes = [(int(k), float(chances[k] / probability)) for k in likely]
            for count, chance in outcomes:
                tally = _votes(draw.phase, start, draw.votes, count, soft)
                key = _merged([*path, tally])
                before = continued.get(key, (0.0, []))[0]
                continued[key] = (before + probability * chance, [*path, tally])
        paths = continued
    return answers, left_out


def replayed(procedure: Procedure[Any], path: list[Tally]) -> tuple[Any, Any]:
    """What a procedure asks after these votes, or what it answers."""
    try:
        draw = next(procedure)
        for tally in path:
            draw = procedure.send(tally)
    except StopIteration as end:
        return None, end.value
    return draw, None


def _votes(phase: Phase, start: int, n: int, count: int, soft: tuple[float, float] | None) -> Tally:
    counts = (count, n - count)
    if soft is None:
        return Tally(Stream(0, 0, phase), start, start + n, counts)
    rows = [
        (int(np.floor(z * SOFT_UNIT)), int(np.ceil(z * z * SOFT_UNIT)))
        for z in (*soft, 1 - soft[0], 1 - soft[1])
    ]
    sums, squares = (tuple(count * rows[c][i] + (n - count) * rows[c + 1][i] for c in (0, 2)) for i in (0, 1))
    return Tally(Stream(0, 0, phase), start, start + n, counts, sums, squares)


def _merged(path: list[Tally]) -> tuple[tuple[int, ...], ...]:
    totals: dict[Phase, tuple[int, int]] = {}
    for tally in path:
        n, count = totals.get(tally.stream.phase, (0, 0))
        totals[tally.stream.phase] = (n + tally.n, count + tally.counts[0])
    return tuple((phase.value, *total) for phase, total in totals.items())


def probability(answers: tuple[Answers, float], event: Callable[[Any], bool]) -> float:
    """Of an event, at most: what was left out counts as if it had happened."""
    return sum(chance for chance, answer in answers[0] if event(answer)) + answers[1]


def leader_and_rival(n: int, p: Sequence[float]) -> NDArray[np.float64]:
    """P[class 0 has a of n votes and the strongest other class b], at [a, b].

    Counts of n votes are independent Poisson numbers given that they add up to n.
    """
    numbers = np.arange(n + 1)
    laws = [stats.poisson.pmf(numbers, n * share) for share in p]
    within = np.zeros((n + 2, n + 1))  # [m + 1, t]: the others have t votes in all and none more than m
    for m in numbers:
        total = np.array([1.0])
        for law in laws[1:]:
            total = np.convolve(total, law[: m + 1])[: n + 1]
        within[m + 1, : len(total)] = total
    exactly = np.diff(within, axis=0)  # [m, t]
    return laws[0][:, None] * exactly[:, ::-1].T / stats.poisson.pmf(n, n)


def counts_of(n: int, classes: int, ahead: int, rival: int) -> list[int]:
    """Counts of n votes in which class 0 has ``ahead`` and the strongest other class ``rival``."""
    counts, rest = [ahead], n - ahead
    for _ in range(classes - 1):
        counts.append(min(rival, rest))
        rest -= counts[-1]
    return counts


def likely_counts(n: int, p: Sequence[float]) -> Iterator[tuple[float, list[int]]]:
    """Counts that stand for all with the same leader and rival, with their probability; unlikely ones are left out."""
    law = leader_and_rival(n, p)
    for ahead, rival in np.argwhere(law > NEGLIGIBLE / n).tolist():
        yield float(law[ahead, rival]), counts_of(n, len(p), ahead, rival)


def joint_miss_rate(rule: Rule, p: Sequence[float], n: int, alpha: float) -> float:
    """P[L > p_0 or U < the largest other probability], for bounds that go by class 0 and its strongest rival."""
    missed = 1.0
    for chance, counts in likely_counts(n, p):
        bounds = rule(hard_tally(counts), 0, alpha)
        if bounds.lower <= p[0] and bounds.upper >= max(p[1:]):
            missed -= chance
    return missed
