"""The bounds of docs/guarantees.md in intervals: from votes and α to L ≤ p_c and U ≥ p_b for every other class b.

Clopper–Pearson's by sums of binomial probabilities in whole numbers, the anytime-valid mixture's by factorials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal

from smoothcert_verify.intervals import (
    NEAR,
    ONE,
    UP,
    ZERO,
    Interval,
    enclosed,
    fixed,
    from_fixed,
    ln_factorial,
)
from smoothcert_verify.reading import UnreadableError
from smoothcert_verify.votes import SOFT_UNIT, Votes

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


_BITS = 128
_MOST_STEPS = 200
_LONGEST_STEP = 50.0
_CLOSE_ENOUGH = 1e-9  # of a guess's logarithm of the tail; two more steps double its digits


@lru_cache(maxsize=1 << 16)
def clopper_pearson_lower(successes: int, n: int, level: Fraction) -> Interval:
    """The p at which P[Bin(n, p) ≥ successes] is ``level``; 0 for no successes."""
    if successes == 0:
        return ZERO
    target = Interval.of(level).ln()
    if successes == n:
        return (target / Interval.of(n)).exp()
    wanted, guess = Interval.of(level), _binomial_guess(successes, n, level)
    tail, slope = _tail_and_slope(successes, n, guess)
    surplus = NEAR.subtract(tail.middle, wanted.middle)
    refined = NEAR.subtract(guess, NEAR.divide(surplus, slope.middle))
    return enclosed(
        refined,
        min(refined, NEAR.subtract(Decimal(1), refined)),
        lambda p: tail_at_least(successes, n, p).high <= wanted.low,
        lambda p: tail_at_least(successes, n, p).low >= wanted.high,
        Interval(Decimal(0), Decimal(1)),
    )


def tail_at_least(k: int, n: int, p: Decimal) -> Interval:
    """P[Bin(n, p) ≥ k] for 1 ≤ k ≤ n and 0 < p < 1."""
    return _tail_and_slope(k, n, p)[0]


def _tail_and_slope(k: int, n: int, p: Decimal) -> tuple[Interval, Interval]:
    """The tail and its derivative in p, which is k/p times the probability of k."""
    share = Interval.of(p)
    rest = ONE - share
    logs = share.ln(), rest.ln()
    at_k = _probability(k, n, *logs)
    slope = at_k * Interval.of(k) / share
    odds = share / rest
    if UP.multiply(Decimal(n - k), odds.high) < k + 1:
        return at_k * _upward(k, n, odds), slope
    # Below the mean: one minus the other tail, which is the upper tail of the failures.
    below = _probability(n - k + 1, n, *reversed(logs)) * _upward(n - k + 1, n, rest / share)
    return ONE - below, slope


def _probability(k: int, n: int, log_p: Interval, log_rest: Interval) -> Interval:
    """P[Bin(n, p) = k]."""
    ways = ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
    return (ways + Interval.of(k) * log_p + Interval.of(n - k) * log_rest).exp()


def _upward(k: int, n: int, odds: Interval) -> Interval:
    """Σ P[j] / P[k] over j ≥ k, for odds at which each term is less than the one before."""
    odds_low, odds_high = fixed(odds, _BITS)
    low = high = sum_low = sum_high = 1 << _BITS
    j = k
    while j < n and high >> 40:
        j += 1
        more = n - j + 1
        low = (low * (more * odds_low) // j) >> _BITS
        high = (high * (more * odds_high) // j >> _BITS) + 1
        sum_low, sum_high = sum_low + low, sum_high + high
    # The ratio of neighbours falls, so that what is left out is less than a geometric series.
    above, below = (n - j) * odds_high, (j + 1) << _BITS
    if above >= below:
        raise ArithmeticError(f"the terms from {j} of {n} on don't fall")
    return from_fixed(sum_low, sum_high + high * above // (below - above) + 1, _BITS)


def _binomial_guess(k: int, n: int, level: Fraction) -> Decimal:
    """The crossing to some nine digits, in floats: Newton's steps on ln tail in the log odds.

    The logarithm is concave in them, so that steps from the left never pass the crossing; where C(n, k)·pᵏ is ``level``
    is left of it.
    """
    log_level = math.log(level.numerator) - math.log(level.denominator)  # it may be too small for a float
    log_share = (log_level - math.lgamma(n + 1) + math.lgamma(k + 1) + math.lgamma(n - k + 1)) / k
    theta = log_share - math.log(max(-math.expm1(log_share), 1e-300))
    for _ in range(_MOST_STEPS):
        log_tail, slope = _float_tail(k, n, theta)
        step = (log_level - log_tail) / max(slope, 1e-300)
        theta += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
        if abs(step) * max(1.0, slope) < _CLOSE_ENOUGH:
            break
    odds = Decimal(theta).exp(NEAR)
    return NEAR.divide(odds, NEAR.add(Decimal(1), odds))


def _float_tail(k: int, n: int, theta: float) -> tuple[float, float]:
    """ln P[Bin ≥ k] at log odds ``theta`` and its derivative in them."""
    log_rest = -math.log1p(math.exp(theta)) if theta < 0 else -theta - math.log1p(math.exp(-theta))
    log_share = log_rest + theta
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log_at_k = ways + k * log_share + (n - k) * log_rest
    odds = math.exp(min(theta, 700.0))
    if (n - k) * odds < k + 1:
        total = _float_upward(k, n, odds)
        return log_at_k + math.log(total), k * math.exp(log_rest) / total
    log_below = log_at_k + math.log(k / (n - k + 1)) - theta + math.log(_float_upward(n - k + 1, n, 1 / odds))
    tail = max(-math.expm1(log_below), 1e-300)
    return math.log(tail), k * math.exp(log_rest + log_at_k) / tail


def _float_upward(k: int, n: int, odds: float) -> float:
    term = total = 1.0
    for j in range(k + 1, n + 1):
        term *= (n - j + 1) * odds / j
        total += term
        if term < total * 1e-13:
            break
    return total


_VERY_CLOSE = Decimal("1e-12")  # of a step's length: the next would be the square of it


@lru_cache(maxsize=1 << 16)
def mixture_lower(successes: int, n: int, level: Fraction) -> Interval:
    """The p ≤ successes/n with pᵃ(1−p)ᵇ = level·B(a+½, b+½)/π; 0 for no successes.

    Γ(k+½) = √π·(2k)!/(4ᵏk!) makes the right side one of factorials.
    """
    if successes == 0:
        return ZERO
    a, b = successes, n - successes
    mixed = ln_factorial(2 * a) + ln_factorial(2 * b) - ln_factorial(a) - ln_factorial(b) - ln_factorial(n)
    wanted = mixed - Interval.of(n) * Interval.of(4).ln() + Interval.of(level).ln()
    if b == 0:
        return (wanted / Interval.of(n)).exp()
    # Newton's steps: the logarithm is concave, so that steps from the left, where pᵃ alone is enough, never pass it.
    p = (wanted / Interval.of(a)).exp().low
    for _ in range(_MOST_STEPS):
        rest = NEAR.subtract(Decimal(1), p)
        missing = NEAR.subtract(wanted.middle, _log_likelihood(a, b, p).middle)
        slope = NEAR.subtract(NEAR.divide(Decimal(a), p), NEAR.divide(Decimal(b), rest))
        step = NEAR.divide(missing, slope)
        p = NEAR.add(p, step)
        if abs(step) < p * _VERY_CLOSE:
            break
    return enclosed(
        p,
        min(p, NEAR.subtract(Decimal(1), p)),
        lambda x: _log_likelihood(a, b, x).high <= wanted.low,
        lambda x: _log_likelihood(a, b, x).low >= wanted.high,
        Interval(Decimal(0), Interval.of(Fraction(a, n)).low),  # it rises up to a/n
    )


def _log_likelihood(a: int, b: int, p: Decimal) -> Interval:
    share = Interval.of(p)
    return Interval.of(a) * share.ln() + Interval.of(b) * (ONE - share).ln()
