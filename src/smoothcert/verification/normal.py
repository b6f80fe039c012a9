"""The normal distribution in intervals: its tail by a series of positive terms, its quantiles by the tail."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from statistics import NormalDist

from smoothcert.verification.intervals import HALF, NEAR, ONE, PI, TWO, ZERO, Interval, fixed, from_fixed
from smoothcert.verification.roots import enclosed

_BITS = 256
_CLOSE = Decimal("1e-13")
_LARGEST = Decimal(15)  # the tail there is 4e-51, beyond what any number of votes can show


def density(x: Interval) -> Interval:
    """φ(x) for x ≥ 0."""
    return (-(x * x) / TWO).exp() / (TWO * PI).sqrt()


def upper_tail(x: Decimal) -> Interval:
    """P[N(0, 1) > x] for 0 ≤ x ≤ 15: ½ − φ(x)·(x + x³/3 + x⁵/(3·5) + …)."""
    return _tail_and_density(x)[0]


@lru_cache(maxsize=1 << 15)
def quantile(p: Interval) -> Interval:
    """Φ⁻¹ of numbers in (0, 1)."""
    return Interval(_quantile(p.low).low, _quantile(p.high).high)


def _tail_and_density(x: Decimal) -> tuple[Interval, Interval]:
    at = Interval.of(x)
    square_low, square_high = fixed(at * at, _BITS)
    low = high = sum_low = sum_high = 1 << _BITS
    odd = 3
    # Terms may grow at first; the sum ends where each is less than half of the one before.
    while high >> 16 or odd << _BITS <= 2 * square_high:
        low = (low * square_low // odd) >> _BITS
        high = (high * square_high // odd >> _BITS) + 1
        sum_low, sum_high = sum_low + low, sum_high + high
        odd += 2
    sum_high += high + 1  # all terms left out are less than the last one together
    height = density(at)
    return HALF - at * height * from_fixed(sum_low, sum_high, _BITS), height


@lru_cache(maxsize=1 << 15)
def _quantile(p: Decimal) -> Interval:
    if p > Decimal("0.5"):
        rest = ONE - Interval.of(p)
        return Interval(_from_tail(rest.high).low, _from_tail(rest.low).high)
    return -_from_tail(p)


def _from_tail(q: Decimal) -> Interval:
    """The z ≥ 0 with upper tail q, for 0 < q ≤ ½."""
    if q >= Decimal("0.5"):
        return ZERO
    z = Decimal(max(0.0, -NormalDist().inv_cdf(float(q))))
    for _ in range(2):  # Newton's steps: they double the digits
        tail, height = _tail_and_density(min(z, _LARGEST))
        step = NEAR.divide(NEAR.subtract(tail.middle, q), height.middle)
        z = NEAR.add(z, step)
        if abs(step) < z * _CLOSE:
            break
    return enclosed(
        z,
        abs(z),
        lambda x: upper_tail(x).low >= q,
        lambda x: upper_tail(x).high <= q,
        Interval(Decimal(0), _LARGEST),
    )
