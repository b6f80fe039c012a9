"""Bounds: from a tally and α to probability bounds that hold together with probability at least 1−α.

Pure float64 statistics, rounded outwards. Every bound takes the class to certify as given: it must have been
chosen without looking at the tally (:mod:`smoothcert.smoothing` draws it from another stream).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scipy.special import betainc, betainccinv, betaincinv

from smoothcert.errors import InvalidValueError, check_probability
from smoothcert.registry import Registry
from smoothcert.rounding import down, up
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

VoteKind = Literal["hard", "soft"]

_INVERSE_BETA_ERROR = 1e-11  # relative; about ten times the largest error seen of scipy's inverse beta


@dataclass(frozen=True)
class ClassBounds:
    """``p_A ≥ lower`` and ``p_c ≤ upper`` for every other class c, jointly with probability 1−α."""

    lower: float
    upper: float

    @property
    def separated(self) -> bool:
        """Whether the chosen class is ahead of every other one."""
        return self.lower > self.upper


@dataclass(frozen=True)
class Bound:
    """A named rule ``(tally, chosen class, alpha) → ClassBounds`` with what it needs and where it is from.

    ``anytime`` says whether the number of votes may depend on the votes; no fixed-n bound allows that.
    """

    name: str
    votes: VoteKind
    anytime: bool
    source: str
    compute: Callable[[Tally, int, float], ClassBounds]

    def __call__(self, tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        """Bounds for class ``chosen``; they fail with probability at most ``alpha`` over the tally's votes."""
        check_probability("alpha", alpha)
        if not 0 <= chosen < len(tally.counts):
            raise InvalidValueError(f"class {chosen} is outside 0..{len(tally.counts) - 1}")
        if tally.n < 1:
            raise InvalidValueError("a bound needs at least one vote, got an empty tally")
        return self.compute(tally, chosen, alpha)


BOUNDS: Registry[Bound] = Registry("bound")


def _register(
    name: str, votes: VoteKind, source: str
) -> Callable[..., Callable[[Tally, int, float], ClassBounds]]:
    def add(
        compute: Callable[[Tally, int, float], ClassBounds],
    ) -> Callable[[Tally, int, float], ClassBounds]:
        BOUNDS.register(name)(Bound(name, votes, anytime=False, source=source, compute=compute))
        return compute

    return add


def clopper_pearson_lower(successes: int, n: int, alpha: float) -> float:
    """L with P[L ≤ p] ≥ 1−α for a binomial count: exact, one-sided, rounded down."""
    _check_binomial(successes, n, alpha)
    if successes == 0:
        return 0.0
    if successes == n:
        return max(0.0, down(1.0 - up(-math.expm1(math.log(alpha) / n)), 0.0))
    lower = float(betaincinv(successes, n - successes + 1, alpha))
    if lower < 0.5:
        return max(0.0, down(lower, _INVERSE_BETA_ERROR))
    # Near one the distance to one is what matters (Φ⁻¹ is steep there), so that is what gets computed.
    missing = float(betainccinv(n - successes + 1, successes, alpha))
    return max(0.0, down(1.0 - up(missing, _INVERSE_BETA_ERROR), 0.0))


def clopper_pearson_upper(successes: int, n: int, alpha: float) -> float:
    """U with P[U ≥ p] ≥ 1−α for a binomial count: exact, one-sided, rounded up."""
    _check_binomial(successes, n, alpha)
    if successes == n:
        return 1.0
    if successes == 0:
        return up(-math.expm1(math.log(alpha) / n))
    upper = float(betainccinv(successes + 1, n - successes, alpha))
    return min(1.0, up(upper, _INVERSE_BETA_ERROR))


def top_two_p_value(first: int, second: int) -> float:
    """Two-sided binomial test of ``first`` out of ``first + second`` against ½ (Cohen 2019, PREDICT)."""
    if min(first, second) < 0:
        raise InvalidValueError(f"vote counts can't be negative, got {first} and {second}")
    more, fewer = max(first, second), min(first, second)
    if more == fewer:
        return 1.0
    if fewer == 0:
        return 2.0 ** (1 - more)
    return min(1.0, up(2.0 * float(betainc(more, fewer + 1, 0.5)), _INVERSE_BETA_ERROR))


@_register("clopper-pearson", "hard", "Cohen et al. 2019: exact lower bound of p_A at α, p_B ≤ 1 − p_A")
def clopper_pearson(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """The papers' protocol: all that isn't the chosen class counts as one rival."""
    return _one_sided(clopper_pearson_lower(tally.counts[chosen], tally.n, alpha))


@_register(
    "two-class", "hard", "exact bounds of p_A and of the largest rival at α/2 each (docs/guarantees.md)"
)
def two_class(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Exact bounds of p_A and of its strongest rival, α/2 each.

    The rival needs no union over classes: let b be the class of largest true p_b. The largest rival count is
    at least b's, and the upper bound grows with the count, so it covers p_b whenever b's own bound does.
    """
    lower = clopper_pearson_lower(tally.counts[chosen], tally.n, alpha / 2)
    rivals = [count for c, count in enumerate(tally.counts) if c != chosen]
    upper = clopper_pearson_upper(max(rivals), tally.n, alpha / 2) if rivals else 0.0
    return ClassBounds(lower, min(upper, _complement_up(lower)))


@_register("hoeffding", "soft", "Hoeffding; MACER (Zhai et al. 2020), appendix A.2")
def hoeffding(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Lower bound ẑ − √(ln(1/α) / 2n) of the mean probability of the chosen class."""
    sums, _ = _soft_sums(tally)
    mean = sums[chosen] / (tally.n * SOFT_UNIT)
    return _one_sided(_difference_down(mean, math.sqrt(-math.log(alpha) / (2 * tally.n))))


@_register("bernstein", "soft", "Maurer & Pontil 2009; MACER (Zhai et al. 2020), appendix A.2")
def bernstein(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Lower bound ẑ − √(2 S² ln(2/α) / n) − 7 ln(2/α) / (3(n−1)), S² the unbiased sample variance."""
    n = tally.n
    if n < 2:
        return ClassBounds(0.0, 1.0)
    sums, squares = _soft_sums(tally)
    total, square = sums[chosen], squares[chosen]
    # Whole numbers until the last division: no cancellation, however small the variance.
    variance = (n * square * SOFT_UNIT - total * total) / (n * (n - 1) * SOFT_UNIT**2)
    log_term = math.log(2 / alpha)
    slack = math.sqrt(2 * max(variance, 0.0) * log_term / n) + 7 * log_term / (3 * (n - 1))
    return _one_sided(_difference_down(total / (n * SOFT_UNIT), slack))


def least_votes(bound: Bound, alpha: float, classes: int = 2) -> int:
    """The smallest n at which a unanimous vote is enough for ``bound`` at ``alpha``."""

    def unanimous_suffices(n: int) -> bool:
        return bound(unanimous(n, classes, bound.votes), 0, alpha).separated

    return _first_true(unanimous_suffices)


def least_prediction_votes(alpha: float) -> int:
    """The smallest n at which PREDICT can answer: all votes for one class, 2·2⁻ⁿ ≤ α."""
    check_probability("alpha", alpha)
    return _first_true(lambda n: top_two_p_value(n, 0) <= alpha)


def unanimous(n: int, classes: int, votes: VoteKind) -> Tally:
    """The most favourable tally of n votes there can be: all for class 0, with full confidence."""
    counts = (n,) + (0,) * (classes - 1)
    soft = tuple(c * SOFT_UNIT for c in counts) if votes == "soft" else None
    return Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, counts, soft, soft)


def _first_true(holds: Callable[[int], bool]) -> int:
    """Smallest n ≥ 1 with ``holds(n)``, for a condition that stays true once it is."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _one_sided(lower: float) -> ClassBounds:
    """The rivals share what the chosen class leaves."""
    lower = max(0.0, lower)
    return ClassBounds(lower, _complement_up(lower))


def _difference_down(value: float, slack: float) -> float:
    """A lower bound of value − slack: each is rounded before they cancel."""
    return down(down(value) - up(slack), 0.0)


def _complement_up(p: float) -> float:
    return up(1.0 - p, 0.0) if p > 0 else 1.0


def _soft_sums(tally: Tally) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if tally.sums is None or tally.squares is None:
        raise InvalidValueError("this bound needs soft votes; the tally holds hard votes only")
    return tally.sums, tally.squares


def _check_binomial(successes: int, n: int, alpha: float) -> None:
    check_probability("alpha", alpha)
    if not 0 <= successes <= n or n < 1:
        raise InvalidValueError(f"need 0 ≤ successes ≤ n and n ≥ 1, got {successes} of {n}")
