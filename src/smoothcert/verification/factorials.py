"""ln n! in intervals: exact below 256, from there on Stirling's series, whose error is less than its next term."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache

from smoothcert.verification.intervals import HALF, PI, TWO, Interval

_EXACT_BELOW = 256
_TERMS = 16  # the seventeenth is below 1e-67 from 256 on


@lru_cache(maxsize=1 << 16)
def ln_factorial(n: int) -> Interval:
    """Ln n! for n ≥ 0."""
    if n < _EXACT_BELOW:
        return Interval.of(math.factorial(n)).ln()
    whole = Interval.of(n)
    total = (whole + HALF) * whole.ln() - whole + HALF * (TWO * PI).ln()
    terms = [Interval.of(_coefficient(m) / n ** (2 * m - 1)) for m in range(1, _TERMS + 2)]
    for term in terms[:-1]:
        total = total + term
    # Consecutive partial sums enclose ln Γ for every positive argument: the signs of the terms alternate.
    other = total + terms[-1]
    return Interval(min(total.low, other.low), max(total.high, other.high))


@cache
def _coefficient(m: int) -> Fraction:
    """B₂ₘ / (2m(2m−1))."""
    return _bernoulli(2 * m) / (2 * m * (2 * m - 1))


@cache
def _bernoulli(m: int) -> Fraction:
    if m == 0:
        return Fraction(1)
    return -sum((math.comb(m + 1, k) * _bernoulli(k) for k in range(m)), Fraction(0)) / (m + 1)
