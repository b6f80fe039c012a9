"""Clopper–Pearson's lower bound in intervals, by sums of binomial probabilities."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from smoothcert.verification.factorials import ln_factorial
from smoothcert.verification.intervals import NEAR, ONE, UP, ZERO, Interval, fixed, from_fixed
from smoothcert.verification.roots import enclosed

_BITS = 128
_MOST_STEPS = 200
_CLOSE_ENOUGH = 1e-9  # of a guess's logarithm of the tail; two more steps double its digits


@lru_cache(maxsize=1 << 16)
def clopper_pearson_lower(successes: int, n: int, level: Fraction) -> Interval:
    """The p at which P[Bin(n, p) ≥ successes] is ``level``; 0 for no successes."""
    if successes == 0:
        return ZERO
    target = Interval.of(level).ln()
    if successes == n:
        return (target / Interval.of(n)).exp()
    wanted, guess = Interval.of(level), _guess(successes, n, level)
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


def _guess(k: int, n: int, level: Fraction) -> Decimal:
    """The crossing to some nine digits, in floats: Newton's steps on ln tail in ln odds, kept within a bracket."""
    # Also of fractions that are too small for a float.
    log_level = math.log(level.numerator) - math.log(level.denominator)
    low, high = -800.0, 800.0
    share = _normal_guess(k, n, level)
    theta = math.log(share) - math.log1p(-share)
    for _ in range(_MOST_STEPS):
        log_tail, slope = _float_tail(k, n, theta)
        if log_tail < log_level:
            low = theta
        else:
            high = theta
        step = (log_level - log_tail) / slope if slope > 0 else math.inf
        before, theta = theta, theta + step
        if not low < theta < high:
            theta = (low + high) / 2
        if abs(theta - before) * max(1.0, slope) < _CLOSE_ENOUGH:
            break
    odds = Decimal(theta).exp(NEAR)
    return NEAR.divide(odds, NEAR.add(Decimal(1), odds))


def _normal_guess(k: int, n: int, level: Fraction) -> float:
    z = NormalDist().inv_cdf(min(max(float(level), 1e-300), 1 - 1e-12))
    mean = (k + z * z / 2) / (n + z * z)
    width = math.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return min(max(mean + z * width, 1e-300), 1 - 1e-12)


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
