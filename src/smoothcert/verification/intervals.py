"""Intervals of decimals that certainly hold the exact value: every operation rounds its ends outwards.

Python's decimal arithmetic rounds sums, products and quotients as told, and logarithms, exponentials and roots to the
nearest number; those are widened by one unit in the last place.
"""

from __future__ import annotations

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
        return Interval(self.low.ln(DOWN).next_minus(DOWN), self.high.ln(UP).next_plus(UP))

    def exp(self) -> Interval:
        """e to the power of it; never below 0."""
        return Interval(max(Decimal(0), self.low.exp(DOWN).next_minus(DOWN)), self.high.exp(UP).next_plus(UP))

    def sqrt(self) -> Interval:
        """Of numbers that aren't below 0."""
        return Interval(
            max(Decimal(0), self.low.sqrt(DOWN).next_minus(DOWN)), self.high.sqrt(UP).next_plus(UP)
        )

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


def fixed(value: Interval, bits: int) -> tuple[int, int]:
    """Whole numbers around value·2^bits, for numbers that aren't below 0."""
    unit = Decimal(1 << bits)
    return int(DOWN.multiply(value.low, unit)), int(UP.multiply(value.high, unit)) + 1


def from_fixed(low: int, high: int, bits: int) -> Interval:
    """The inverse of :func:`fixed`."""
    unit = Decimal(1 << bits)
    return Interval(DOWN.divide(Decimal(low), unit), UP.divide(Decimal(high), unit))
