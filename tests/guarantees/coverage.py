"""How a promised failure rate is held against what happens: shared by the guarantee tests.

Every check raises TooOftenError when the promise is broken; test_broken_bounds.py shows that it does.
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
        if rate > alpha * (1 + 1e-6):
            raise TooOftenError(f"misses with probability {rate} > {alpha} at p = {p}")
        if rate < alpha * (1 - 1e-4):
            raise WastefulError(f"misses with probability {rate} < {alpha} at p = {p}")
