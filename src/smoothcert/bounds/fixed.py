"""Bounds of a number of votes fixed in advance: Clopper–Pearson's of hard votes, and of the mean of soft ones."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable

from smoothcert.bounds.base import Bound, ClassBounds, VoteKind, complement_up, one_sided, register
from smoothcert.errors import InvalidValueError, check_probability
from smoothcert.rounding import down, up
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

_INVERSE_BETA_ERROR = 1e-11  # relative; about ten times the largest error seen of scipy's inverse beta
# From 10⁸ votes on, the tail at scipy's inverse was seen to be off by up to 3e-7.
_FEWER_THAN_ARE_HARD = 10**7
_TAIL_ERROR = 1e-6

RIVAL_PART = 32
"""The strongest rival's bound gets α/32, p_A's the rest.

On real votes 1/50 to 1/20 is best for n from 10³ to 10⁶ (``benchmarks.votes``): a smaller part costs the rival's
bound little, as its distance grows with √ln(1/α) only, and leaves p_A's nearly all of α, which is what counts where
votes are almost unanimous. A power of two, because α/32 is then exact.
"""


def clopper_pearson_lower(successes: int, n: int, alpha: float) -> float:
    """L with P[L ≤ p] ≥ 1−α for a binomial count: exact, one-sided, rounded down."""
    successes, n, alpha = check_binomial(successes, n, alpha)
    if successes == 0:
        return 0.0
    if successes == n:
        return max(0.0, down(1.0 - up(-math.expm1(math.log(alpha) / n)), 0.0))
    from scipy.special import betainccinv, betaincinv  # a third of a second, which help and verify do without

    alpha = _safe_level(alpha, n)
    lower = float(betaincinv(successes, n - successes + 1, alpha))
    if lower < 0.5:
        return max(0.0, down(lower, _INVERSE_BETA_ERROR))
    # Near one the distance to one is what matters (Φ⁻¹ is steep there), so that is what gets computed.
    missing = float(betainccinv(n - successes + 1, successes, alpha))
    return max(0.0, down(1.0 - up(missing, _INVERSE_BETA_ERROR), 0.0))


def clopper_pearson_upper(successes: int, n: int, alpha: float) -> float:
    """U with P[U ≥ p] ≥ 1−α for a binomial count: exact, one-sided, rounded up."""
    successes, n, alpha = check_binomial(successes, n, alpha)
    if successes == n:
        return 1.0
    if successes == 0:
        return up(-math.expm1(math.log(alpha) / n))
    from scipy.special import betainccinv

    upper = float(betainccinv(successes + 1, n - successes, _safe_level(alpha, n)))
    return min(1.0, up(upper, _INVERSE_BETA_ERROR))


def top_two_p_value(first: int, second: int) -> float:
    """Two-sided binomial test of ``first`` out of ``first + second`` against ½ (Cohen 2019, PREDICT)."""
    if min(first, second) < 0:
        raise InvalidValueError(f"vote counts can't be negative, got {first} and {second}")
    # Python's own: beside small types of NumPy's, scipy computes in float32.
    more, fewer = int(max(first, second)), int(min(first, second))
    if more == fewer:
        return 1.0
    if fewer == 0:
        return 2.0 ** (1 - more)
    from scipy.special import betainc

    return min(1.0, up(2.0 * float(betainc(more, fewer + 1, 0.5)), _INVERSE_BETA_ERROR))


@register(
    "clopper-pearson",
    "hard",
    "Cohen et al. 2019: exact lower bound of p_A at α, p_B ≤ 1 − p_A",
    partner="mixture",
)
def clopper_pearson(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """The papers' protocol: all that isn't the chosen class counts as one rival."""
    return one_sided(clopper_pearson_lower(tally.counts[chosen], tally.n, alpha))


@register("top-two", "hard", "exact bounds of p_A at 31α/32, its largest rival at α/32 (docs/guarantees.md)")
def top_two(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Exact bounds of p_A and of its strongest rival, which share α as 31 : 1.

    The rival needs no union over classes: let b be the class of largest true p_b. The largest rival count is
    at least b's, and the upper bound grows with the count, so it covers p_b whenever b's own bound does.
    """
    return _shared(tally, chosen, alpha, RIVAL_PART)


@register("two-class", "hard", "as top-two with α/2 each: the default until November 2026", superseded=True)
def two_class(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Exact bounds of p_A and of its strongest rival, α/2 each."""
    return _shared(tally, chosen, alpha, 2)


def _shared(tally: Tally, chosen: int, alpha: float, part: int) -> ClassBounds:
    """α/part for the largest rival, the rest for the chosen class."""
    if alpha < part * sys.float_info.min:  # the rival's part would be subnormal, or 0
        return ClassBounds(0.0, 1.0)
    lower = clopper_pearson_lower(tally.counts[chosen], tally.n, without_part(alpha, part))
    rivals = [count for c, count in enumerate(tally.counts) if c != chosen]
    upper = clopper_pearson_upper(max(rivals), tally.n, alpha / part) if rivals else 0.0
    return ClassBounds(lower, min(upper, complement_up(lower)))


def without_part(alpha: float, part: int) -> float:
    """α − α/part, rounded down unless it is exact."""
    rest = alpha - alpha / part
    return rest if part == 2 else down(rest, 0.0)


def _safe_level(alpha: float, n: int) -> float:
    """The level to ask scipy's inverse for, so that the tail at its answer doesn't exceed ``alpha``."""
    return alpha if n < _FEWER_THAN_ARE_HARD else down(alpha, _TAIL_ERROR)


def check_binomial(successes: int, n: int, alpha: float) -> tuple[int, int, float]:
    """Refuse counts and levels that make no sense; as Python's numbers, or scipy might compute in float32."""
    alpha = check_probability("alpha", alpha)
    if not 0 <= successes <= n or n < 1 or int(successes) != successes or int(n) != n:
        raise InvalidValueError(f"need whole numbers 0 ≤ successes ≤ n and n ≥ 1, got {successes} of {n}")
    return int(successes), int(n), alpha


@register("hoeffding", "soft", "Hoeffding; MACER (Zhai et al. 2020), appendix A.2")
def hoeffding(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
    """Lower bound ẑ − √(ln(1/α) / 2n) of the mean probability of the chosen class."""
    sums, _ = _soft_sums(tally)
    mean = sums[chosen] / (tally.n * SOFT_UNIT)
    return one_sided(_difference_down(mean, math.sqrt(-math.log(alpha) / (2 * tally.n))))


@register("bernstein", "soft", "Maurer & Pontil 2009; MACER (Zhai et al. 2020), appendix A.2")
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
    return one_sided(_difference_down(total / (n * SOFT_UNIT), slack))


def _difference_down(value: float, slack: float) -> float:
    """A lower bound of value − slack: each is rounded before they cancel."""
    return down(down(value) - up(slack), 0.0)


def _soft_sums(tally: Tally) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if tally.sums is None or tally.squares is None:
        raise InvalidValueError("this bound needs soft votes; the tally holds hard votes only")
    return tally.sums, tally.squares


def least_votes(bound: Bound, alpha: float) -> int:
    """The smallest n, of those ``bound`` permits, at which a unanimous vote is enough for it at ``alpha``."""

    def unanimous_suffices(n: int) -> bool:
        return bound(unanimous(n, 2, bound.votes), 0, alpha).separated

    if bound.next_look is None:
        return _first_true(unanimous_suffices)
    n = bound.next_look(0)
    while not unanimous_suffices(n):
        n = bound.next_look(n)
    return n


def least_prediction_votes(alpha: float) -> int:
    """The smallest n at which PREDICT can answer: all votes for one class, 2·2⁻ⁿ ≤ α."""
    alpha = check_probability("alpha", alpha)
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
    return bisect_left(range(high), True, high // 2 + 1, key=holds)
