"""How a promised failure rate is held against what happens: shared by the guarantee tests.

Every check here raises AssertionError when the promise is broken; test_broken_bounds.py proves that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from smoothcert.bounds import ClassBounds
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)
FALSE_ALARM = 1e-6  # probability that a check fails although the promise holds

Rule = Callable[[Tally, int, float], ClassBounds]


def assert_rate_within(failures: int, trials: int, alpha: float) -> None:
    """Fails if so many failures would be a one-in-a-million accident at rate ``alpha``."""
    assert stats.binom.sf(failures - 1, trials, alpha) > FALSE_ALARM, (
        f"{failures} failures in {trials} trials: more than alpha = {alpha} allows"
    )


def assert_rate_not_below(failures: int, trials: int, least: float) -> None:
    """Fails if so few failures would be a one-in-a-million accident at rate ``least``: the bound is wasteful."""
    assert stats.binom.cdf(failures, trials, least) > FALSE_ALARM, (
        f"{failures} failures in {trials} trials: far fewer than {least}, the bound wastes votes"
    )


def hard_tally(counts: Sequence[int], stream: Stream = STREAM) -> Tally:
    return Tally(stream, 0, int(sum(counts)), tuple(int(c) for c in counts))


def soft_tally(probabilities: np.ndarray) -> Tally:
    """A tally of rows of probabilities, rounded as the engine rounds."""
    counts = np.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])
    sums = np.floor(probabilities * SOFT_UNIT).astype(np.int64).sum(0)
    squares = np.ceil(probabilities**2 * SOFT_UNIT).astype(np.int64).sum(0)
    return Tally(
        STREAM, 0, len(probabilities), *(tuple(int(v) for v in row) for row in (counts, sums, squares))
    )


def exact_miss_rate(lower_bound: Callable[[int], float], n: int, p: float) -> float:
    """P[L(K) > p] for K ~ Binomial(n, p), summed exactly: no simulation."""
    misses = [k for k in range(n + 1) if lower_bound(k) > p]
    return float(sum(stats.binom.pmf(misses, n, p))) if misses else 0.0


def assert_exact_lower_coverage(lower_bound: Callable[[int], float], n: int, alpha: float) -> None:
    """The miss rate peaks just below each value the bound can take: there it must reach α, and never pass it."""
    for k in range(1, n + 1):
        p = lower_bound(k) * (1 - 1e-9)
        rate = exact_miss_rate(lower_bound, n, p)
        assert rate <= alpha * (1 + 1e-6), f"misses with probability {rate} > {alpha} at p = {p}"
        assert rate >= alpha * (1 - 1e-4), f"misses with probability {rate} only at p = {p}: wasteful"


def joint_misses(rule: Rule, p: Sequence[float], n: int, alpha: float, trials: int, seed: int) -> int:
    """How often bounds for class 0 fail to hold together, in ``trials`` simulated tallies."""
    votes = np.random.default_rng(seed).multinomial(n, p, size=trials)
    unique, times = np.unique(votes, axis=0, return_counts=True)
    misses = 0
    for counts, repeated in zip(unique, times):
        bounds = rule(hard_tally(counts), 0, alpha)
        misses += int(repeated) * (bounds.lower > p[0] or bounds.upper < max(p[1:]))
    return misses
