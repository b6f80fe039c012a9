"""The bounds of docs/guarantees.md in intervals: from votes and α to L ≤ p_c and U ≥ p_b for every other class b."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

from smoothcert.verification.binomial import clopper_pearson_lower
from smoothcert.verification.intervals import ONE, ZERO, Interval
from smoothcert.verification.mixture import mixture_lower
from smoothcert.verification.votes import SOFT_UNIT, UnreadableError, Votes

Lower = Callable[[int, int, Fraction], Interval]


@dataclass(frozen=True)
class Pair:
    """L and U, each an interval around the exact number."""

    lower: Interval
    upper: Interval

    def after_paying(self, distance: Interval) -> Pair:
        """The bounds for the true noise, where votes were drawn from noise at most ``distance`` from it."""
        return Pair(self.lower - distance, (self.upper + distance).at_most(ONE))


NOTHING = Pair(ZERO, ONE)
"""The bounds without votes."""


@dataclass(frozen=True)
class BoundKind:
    """What a bound's name stands for."""

    votes: Literal["hard", "soft"]
    anytime: bool = False
    looks: bool = False
    rival: Fraction | None = None
    """The part of α that the strongest rival's bound gets, where it has one."""


BOUNDS = {
    "top-two": BoundKind("hard", rival=Fraction(1, 32)),
    "two-class": BoundKind("hard", rival=Fraction(1, 2)),
    "clopper-pearson": BoundKind("hard"),
    "hoeffding": BoundKind("soft"),
    "bernstein": BoundKind("soft"),
    "mixture": BoundKind("hard", anytime=True),
    "mixture-top-two": BoundKind("hard", anytime=True, rival=Fraction(1, 32)),
    "mixture-two-class": BoundKind("hard", anytime=True, rival=Fraction(1, 2)),
    "looks": BoundKind("hard", anytime=True, looks=True),
    "looks-top-two": BoundKind("hard", anytime=True, looks=True, rival=Fraction(1, 32)),
    "looks-two-class": BoundKind("hard", anytime=True, looks=True, rival=Fraction(1, 2)),
}


def bounds_of(name: str, votes: Votes, chosen: int, alpha: Fraction) -> Pair:
    """The bounds that ``name`` stands for; UnreadableError where it may not be evaluated at this number of votes."""
    if not votes.n:
        return NOTHING
    kind = BOUNDS[name]
    if kind.votes == "soft":
        return _one_sided((_hoeffding if name == "hoeffding" else _bernstein)(votes, chosen, alpha))
    level = alpha * look_share(votes.n) if kind.looks else alpha
    find: Lower = clopper_pearson_lower if kind.looks or not kind.anytime else mixture_lower
    count, n = votes.counts[chosen], votes.n
    if kind.rival is None:
        return _one_sided(find(count, n, level))
    lower = find(count, n, level * (1 - kind.rival))
    rivals = [votes.counts[c] for c in range(len(votes.counts)) if c != chosen]
    # An upper bound of a share is one minus the lower bound of the rest.
    upper = ONE - find(n - max(rivals), n, level * kind.rival) if rivals else ZERO
    return Pair(lower, upper.at_most(ONE - lower))


def look_share(n: int) -> Fraction:
    """The part of α that is for a look at n votes: F(k+1) − F(k), F(k) = k²/(k² + 24²), at n = 100·10^{k/8}."""
    k = _look_number(n)
    if k is None:
        raise UnreadableError(f"{n} votes, which is none of the bound's looks")
    return Fraction((k + 1) ** 2, (k + 1) ** 2 + 576) - Fraction(k * k, k * k + 576)


def is_look(n: int) -> bool:
    """Whether n is 100·10^{k/8} rounded, for some k."""
    return _look_number(n) is not None


@cache
def _look_number(n: int) -> int | None:
    """The k with 100·10^{k/8} within ½ of n, by comparing eighth powers: (2n−1)⁸ ≤ 200⁸·10ᵏ < (2n+1)⁸."""
    if n < 1:
        return None
    k = 0
    while 200**8 * 10**k < (2 * n - 1) ** 8:
        k += 1
    return k if 200**8 * 10**k < (2 * n + 1) ** 8 else None


def _one_sided(lower: Interval) -> Pair:
    lower = lower.at_least(ZERO)
    return Pair(lower, ONE - lower)


def _hoeffding(votes: Votes, chosen: int, alpha: Fraction) -> Interval:
    """ẑ − √(ln(1/α) / 2n)."""
    return _mean(votes, chosen) - (-Interval.of(alpha).ln() / Interval.of(2 * votes.n)).sqrt()


def _bernstein(votes: Votes, chosen: int, alpha: Fraction) -> Interval:
    """ẑ − √(2 S² ln(2/α) / n) − 7 ln(2/α) / (3(n−1))."""
    n = votes.n
    if n < 2:
        return ZERO
    sums, squares = _soft(votes)
    total, square = sums[chosen], squares[chosen]
    variance = Fraction(n * square * SOFT_UNIT - total * total, n * (n - 1) * SOFT_UNIT**2)
    log_term = Interval.of(2 / alpha).ln()
    spread = (Interval.of(2 * max(variance, Fraction(0)) / n) * log_term).sqrt()
    return _mean(votes, chosen) - spread - Interval.of(Fraction(7, 3 * (n - 1))) * log_term


def _mean(votes: Votes, chosen: int) -> Interval:
    return Interval.of(Fraction(_soft(votes)[0][chosen], votes.n * SOFT_UNIT))


def _soft(votes: Votes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if votes.sums is None or votes.squares is None:
        raise UnreadableError("hard votes, where the bound needs soft ones")
    return votes.sums, votes.squares
