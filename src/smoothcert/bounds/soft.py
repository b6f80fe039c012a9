"""Bounds of the mean of soft votes."""

from __future__ import annotations

import math

from smoothcert.bounds.base import ClassBounds, one_sided, register
from smoothcert.errors import InvalidValueError
from smoothcert.rounding import down, up
from smoothcert.tally import SOFT_UNIT, Tally


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
