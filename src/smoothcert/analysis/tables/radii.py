"""The radii that head a table's columns."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

from smoothcert.analysis.metrics import largest_radius
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Run

_FIELD_STEP = Decimal("0.25")
_MOST_FIELD_STEPS = 12
_MOST_STEPS = 10
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_radii(text: str) -> list[str]:
    """Split ``0,0.25,0.5`` into radii, each kept as it was typed."""
    radii = [part.strip() for part in text.split(",")]
    seen: dict[float, str] = {}
    for radius in radii:
        value = float(radius) if _DECIMAL.fullmatch(radius) else math.nan
        if not (math.isfinite(value) and value >= 0):
            raise InvalidValueError(
                f"radii must be numbers of at least 0 with commas between them, got {radius!r} in {text!r}"
            )
        if value in seen:
            raise InvalidValueError(
                f"radius {radius} is given twice in {text!r} (as {seen[value]}); leave one out"
            )
        seen[value] = radius
    return radii


def default_radii(runs: Sequence[Run]) -> list[str]:
    """Radii from 0 to just above the largest one certified correctly.

    They are the field's multiples of 0.25 where those make 2 to 12 columns, else multiples of a round number
    that make at most ten.
    """
    return radii_up_to(max((largest_radius(run.records) for run in runs), default=0.0))


def radii_up_to(largest: float) -> list[str]:
    """The same up to just above a radius."""
    reach = Decimal(largest)
    step = _FIELD_STEP
    if 0 < reach < 2 * _FIELD_STEP or reach >= _MOST_FIELD_STEPS * _FIELD_STEP:
        step = round_step(reach, _MOST_STEPS)
    return multiples(step, max(2, int((reach / step).to_integral_value(ROUND_FLOOR)) + 1))


def multiples(step: Decimal, last: int) -> list[str]:
    """0 to ``last`` times a step, in as many digits as they need."""
    return [format((step * k).normalize(), "f") for k in range(last + 1)]


def round_step(reach: Decimal, most: int) -> Decimal:
    """The least of 1, 2.5 and 5 times a power of ten that reaches ``reach`` in at most ``most`` steps."""
    power = Decimal(10) ** (reach.adjusted() - 3)
    while True:
        for factor in ("1", "2.5", "5"):
            step = power * Decimal(factor)
            if reach < step * most:
                return step
        power *= 10
