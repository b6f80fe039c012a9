"""The arithmetic that keeps a region's answers on the safe side."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError

Point = NDArray[np.float64]

_HALF_ULP = 2.0**-53
FUNCTION_ERROR = 1e-14
"""The margin of ``smoothcert.rounding.down``."""


def as_center(center: ArrayLike) -> Point:
    """A read-only float64 copy, refused if a coordinate isn't finite."""
    point = np.array(center, dtype=np.float64)
    if not np.isfinite(point).all():
        raise InvalidValueError("a region's center must be finite")
    point.setflags(write=False)
    return point


def difference(point: ArrayLike, center: Point) -> Point:
    """``point − center``, flat; refuses another shape, and what isn't real numbers."""
    given = np.asarray(point)
    if given.shape != center.shape:
        raise InvalidValueError(
            f"a point of shape {given.shape} can't be compared with a center of {center.shape}"
        )
    if given.dtype.kind not in "biuf":
        raise InvalidValueError(f"a point must hold real numbers, got dtype {given.dtype}")
    if (given.dtype.itemsize >= 8 and given.dtype.kind in "iu") or given.dtype.itemsize > 8:
        given = given.astype(np.longdouble)  # float64 would round the point itself, which no margin is for
    return np.asarray(given - center, dtype=np.float64).ravel()


def stable_norm(values: Point, order: int) -> float:
    """The ℓ1 or ℓ2 norm of a flat vector, whatever the size of its squares."""
    largest = float(np.abs(values).max())
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest, order))


def all_down(values: Point, relative: float = FUNCTION_ERROR) -> Point:
    """:func:`smoothcert.rounding.down` for each of many positive numbers: the same floats."""
    return np.asarray(np.nextafter(values - values * relative, -np.inf))


def norm_error(dimension: int) -> float:
    """Bound of the relative error of a ``dimension``-term norm of rounded differences.

    Each difference carries one rounding, each product, quotient or power one, a sum at most one per term.
    """
    return (dimension + 8) * _HALF_ULP
