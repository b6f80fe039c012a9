"""Numbers between bounds that certainly hold the exact value: every operation rounds its ends outwards.

Python's decimal arithmetic rounds sums, products and quotients as told, and logarithms, exponentials and roots to the
nearest number; those are widened by one unit in the last place. ln n! and the normal distribution are built on it;
inverses are guessed, and then proved by the function's value on either side of the guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction
from functools import cache, lru_cache
from statistics import NormalDist

DIGITS = 60
_TRAPS = [InvalidOperation, DivisionByZero, Overflow]
DOWN = Context(DIGITS, ROUND_FLOOR, MIN_EMIN, MAX_EMAX, traps=_TRAPS)
UP = Context(DIGITS, ROUND_CEILING, MIN_EMIN, MAX_EMAX, traps=_TRAPS)
NEAR = Context(DIGITS, ROUND_HALF_EVEN, MIN_EMIN, MAX_EMAX, traps=_TRAPS)
"""For guesses, which are proved afterwards."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from ``low`` to ``high``."""

    low: Decimal
    high: Decimal

    @classmethod
    def of(cls, value: int | float | Fraction | Decimal) -> Interval:
        """The narrowest interval around an exactly known number."""
        if isinstance(value, Fraction):
            top, bottom = Decimal(value.numerator), Decimal(value.denominator)
            return cls(DOWN.divide(top, bottom), UP.divide(top, bottom))
        exact = value if isinstance(value, Decimal) else Decimal(value)
        return cls(DOWN.plus(exact), UP.plus(exact))

    def __neg__(self) -> Interval:
        return Interval(self.high.copy_negate(), self.low.copy_negate())

    def __add__(self, other: Interval) -> Interval:
        return Interval(DOWN.add(self.low, other.low), UP.add(self.high, other.high))

    def __sub__(self, other: Interval) -> Interval:
        return Interval(DOWN.subtract(self.low, other.high), UP.subtract(self.high, other.low))

    def __mul__(self, other: Interval) -> Interval:
        if self.low >= 0 and other.low >= 0:
            return Interval(DOWN.multiply(self.low, other.low), UP.multiply(self.high, other.high))
        pairs = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(DOWN.multiply(a, b) for a, b in pairs), max(UP.multiply(a, b) for a, b in pairs))

    def __truediv__(self, other: Interval) -> Interval:
        """The divisor must be above 0."""
        if not other.low > 0:
            raise ArithmeticError(f"the divisor must be above 0, it may be {other.low}")
        return Interval(
            DOWN.divide(self.low, other.high if self.low >= 0 else other.low),
            UP.divide(self.high, other.low if self.high >= 0 else other.high),
        )

    def ln(self) -> Interval:
        """Of numbers above 0."""
        return self._widened(Decimal.ln)

    def exp(self) -> Interval:
        """e to the power of it; never below 0."""
        return self._widened(Decimal.exp).at_least(ZERO)

    def sqrt(self) -> Interval:
        """Of numbers that aren't below 0."""
        return self._widened(Decimal.sqrt).at_least(ZERO)

    def _widened(self, increasing: Callable[[Decimal, Context], Decimal]) -> Interval:
        """A function that is rounded to the nearest number, whatever the context says."""
        low = increasing(self.low, NEAR)
        high = low if self.high == self.low else increasing(self.high, NEAR)
        return Interval(low.next_minus(DOWN), high.next_plus(UP))

    def at_least(self, floor: Interval) -> Interval:
        """The larger of the two."""
        return Interval(max(self.low, floor.low), max(self.high, floor.high))

    def at_most(self, ceiling: Interval) -> Interval:
        """The smaller of the two."""
        return Interval(min(self.low, ceiling.low), min(self.high, ceiling.high))

    @property
    def middle(self) -> Decimal:
        """A number near its middle."""
        return NEAR.divide(NEAR.add(self.low, self.high), Decimal(2))


ZERO, HALF, ONE, TWO = (Interval.of(Fraction(k, 2)) for k in (0, 1, 2, 4))
PI = Interval(
    Decimal("3.1415926535897932384626433832795028841971693993751058209749445"),
    Decimal("3.1415926535897932384626433832795028841971693993751058209749446"),
)
"""π to one unit in its 61st decimal."""
_LN_TWO_PI, _ROOT_TWO_PI = (TWO * PI).ln(), (TWO * PI).sqrt()


def fixed(value: Interval, bits: int) -> tuple[int, int]:
    """Whole numbers around value·2^bits, for numbers that aren't below 0."""
    unit = Decimal(1 << bits)
    return int(DOWN.multiply(value.low, unit)), int(UP.multiply(value.high, unit)) + 1


def from_fixed(low: int, high: int, bits: int) -> Interval:
    """The inverse of :func:`fixed`."""
    unit = Decimal(1 << bits)
    return Interval(DOWN.divide(Decimal(low), unit), UP.divide(Decimal(high), unit))


_WIDTHS = tuple(Decimal(10) ** -power for power in (19, 16, 12, 8, 4, 1))


Side = Callable[[Decimal], bool]


def enclosed(guess: Decimal, scale: Decimal, is_left: Side, is_right: Side, limits: Interval) -> Interval:
    """An interval around the crossing, about ``guess`` ± 1e-19·``scale``; wider if that can't be proved.

    ``is_left(x)`` must be true only where the crossing is certainly not left of x, and ``is_right`` likewise.
    ``limits`` hold the crossing whatever the guess.
    """
    low, high = limits.low, limits.high
    for width in _WIDTHS:
        step = scale * width
        if low == limits.low:
            x = DOWN.subtract(guess, step)
            low = x if limits.low < x < limits.high and is_left(x) else low
        if high == limits.high:
            x = UP.add(guess, step)
            high = x if limits.low < x < limits.high and is_right(x) else high
        if low > limits.low and high < limits.high:
            break
    return Interval(low, high)


_EXACT_BELOW = 256
_TERMS = 16  # the seventeenth is below 1e-67 from 256 on


@lru_cache(maxsize=1 << 16)
def ln_factorial(n: int) -> Interval:
    """Ln n! for n ≥ 0."""
    if n < _EXACT_BELOW:
        return Interval.of(math.factorial(n)).ln()
    whole = Interval.of(n)
    total = (whole + HALF) * whole.ln() - whole + HALF * _LN_TWO_PI
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


_BITS = 256
_CLOSE = Decimal("1e-13")
_LARGEST = Decimal(15)  # the tail there is 4e-51, beyond what any number of votes can show


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
    height = (-(at * at) / TWO).exp() / _ROOT_TWO_PI  # φ(x)
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
