"""Directed rounding: every step from votes to a region errs towards the smaller claim.

Library functions are accurate to a few units in the last place; the margins here are a little wider than
their errors (tests/test_rounding.py compares them with 50-digit arithmetic).
"""

from __future__ import annotations

import math

_FUNCTION_ERROR = 1e-14  # relative error allowed to one special-function value


def down(value: float, relative: float = _FUNCTION_ERROR) -> float:
    """A number no larger than the exact value that ``value`` approximates to ``relative``."""
    return math.nextafter(value - abs(value) * relative, -math.inf)


def up(value: float, relative: float = _FUNCTION_ERROR) -> float:
    """A number no smaller than the exact value that ``value`` approximates to ``relative``."""
    return math.nextafter(value + abs(value) * relative, math.inf)


def normal_quantile_down(p: float) -> float:
    """A lower bound of Φ⁻¹(p)."""
    return down(_normal_quantile(p))


def normal_quantile_up(p: float) -> float:
    """An upper bound of Φ⁻¹(p)."""
    return up(_normal_quantile(p))


def _normal_quantile(p: float) -> float:
    from scipy.special import ndtri  # a third of a second, which help and verify do without

    return float(ndtri(p))


def decimal_down(value: float, digits: int) -> str:
    """``value`` ≥ 0 with ``digits`` decimals, cut off and never rounded up."""
    # Exact in rational arithmetic: a binary product could cross an integer either way.
    numerator, denominator = value.as_integer_ratio()
    scaled = numerator * 10**digits // denominator
    # The shortest text of a float may lie a hair above its exact value and still mean that very float.
    if float(f"{scaled + 1}e-{digits}") <= value:
        scaled += 1
    return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}" if digits else str(scaled)


SAME = 1e-9
"""Another version of scipy may round a radius differently in its last bits: relative to it, or to its noise's σ."""


def same_radius(one: float, other: float, sigma: float = 0.0) -> bool:
    """Whether two radii are the same but for rounding by another version."""
    return math.isclose(one, other, rel_tol=SAME, abs_tol=SAME * sigma)
