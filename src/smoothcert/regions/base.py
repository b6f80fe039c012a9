"""What every region can answer, and the arithmetic that keeps its answers on the safe side."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError

Point = NDArray[np.float64]

_HALF_ULP = 2.0**-53
FUNCTION_ERROR = 1e-14
"""The margin of ``smoothcert.rounding.down``."""


class Region(Protocol):
    """An open convex set. All answers are float64 and err inward: a region never claims a point it may miss."""

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly inside."""
        ...

    def distance(self, point: ArrayLike) -> float:
        """A lower bound of the distance from ``point`` to the region (0 inside), in the region's norm."""
        ...

    def largest_inside(self, center: ArrayLike) -> Self | None:
        """The largest region of the same shape around ``center`` that lies in this one; None if there is none."""
        ...

    def largest_outside(self, center: ArrayLike) -> Self | None:
        """The largest region of the same shape around ``center`` that doesn't meet this one; None if none."""
        ...

    def log_volume(self) -> float:
        """Natural logarithm of the volume; never under- or overflows."""
        ...

    @property
    def certified_area(self) -> float:
        """Σ ln a_i over the semi-axes a_i (a ball's are its radius): the log-volume up to a constant of the norm."""
        ...

    @property
    def volume_radius(self) -> float:
        """Radius of the ball of the same norm and volume, rounded down: the geometric mean of the semi-axes."""
        ...

    @property
    def inscribed_radius(self) -> float:
        """Radius of the largest ball of the same norm around the center that lies inside."""
        ...

    def half_width(self, direction: ArrayLike) -> float:
        """Euclidean length from the center to the edge along any vector, rounded down."""
        ...

    def covers(self, delta: ArrayLike) -> bool:
        """True only if center + delta, in exact arithmetic, is certainly inside."""
        ...

    def scale_to_edge(self, delta: ArrayLike) -> float:
        """By which factor ``delta`` may be multiplied before it leaves, rounded down; infinite for no change."""
        ...


def as_center(center: ArrayLike) -> Point:
    """A read-only float64 copy, refused if a coordinate isn't finite."""
    point = np.array(center, dtype=np.float64)
    if not np.isfinite(point).all():
        raise InvalidValueError("a region's center must be finite")
    point.setflags(write=False)
    return point


def difference(point: ArrayLike, center: Point) -> Point:
    """``point − center``, flat; refuses another shape."""
    moved = np.asarray(point, dtype=np.float64)
    if moved.shape != center.shape:
        raise InvalidValueError(
            f"a point of shape {moved.shape} can't be compared with a center of {center.shape}"
        )
    return np.asarray(moved - center, dtype=np.float64).ravel()


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
