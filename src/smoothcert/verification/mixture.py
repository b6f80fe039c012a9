"""The anytime-valid mixture's lower bound in intervals."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from smoothcert.verification.factorials import ln_factorial
from smoothcert.verification.intervals import NEAR, ONE, ZERO, Interval
from smoothcert.verification.roots import enclosed

_BISECTIONS = 60
_STEPS = 4


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
    p = _guess(a, b, wanted.middle)
    for _ in range(_STEPS):
        rest = NEAR.subtract(Decimal(1), p)
        surplus = NEAR.subtract(_log_likelihood(a, b, p).middle, wanted.middle)
        slope = NEAR.subtract(NEAR.divide(Decimal(a), p), NEAR.divide(Decimal(b), rest))
        p = NEAR.subtract(p, NEAR.divide(surplus, slope))
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


def _guess(a: int, b: int, wanted: Decimal) -> Decimal:
    """By halving the range of y in p = p̂·e^{−y}, in floats; what cancels is taken apart beforehand."""
    n = a + b
    best = _log_likelihood(a, b, NEAR.divide(Decimal(a), Decimal(n))).middle
    hurdle = float(NEAR.subtract(best, wanted))
    low, high = 0.0, 1.0
    while _loss(a, b, high) < hurdle:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        y = (low + high) / 2
        low, high = (y, high) if _loss(a, b, y) < hurdle else (low, y)
    return NEAR.divide(NEAR.multiply(Decimal(a), Decimal(-high).exp(NEAR)), Decimal(n))


def _loss(a: int, b: int, y: float) -> float:
    """How much less likely the votes are at p̂e^{−y} than at p̂, as a logarithm."""
    return a * y - b * math.log1p(-a * math.expm1(-y) / b)
