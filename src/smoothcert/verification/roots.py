"""Where an increasing function crosses a level: an untrusted guess, and two evaluations that prove it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from smoothcert.verification.intervals import DOWN, UP, Interval

_WIDTHS = tuple(Decimal(10) ** -power for power in (19, 16, 12, 8, 4, 1))


def enclosed(
    guess: Decimal,
    scale: Decimal,
    is_left: Callable[[Decimal], bool],
    is_right: Callable[[Decimal], bool],
    limits: Interval,
) -> Interval:
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
