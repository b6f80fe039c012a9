"""Axis-aligned ellipsoids, the region of noise with its own scale in every dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.regions.base import Point, as_center, difference, norm_error
from smoothcert.rounding import down, up

_DUAL_STEPS = 200


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """{x : ‖(x − center) ⊘ semi_axes‖₂ < 1}."""

    center: Point
    semi_axes: NDArray[np.float64]

    def __post_init__(self) -> None:
        center, axes = as_center(self.center), as_center(self.semi_axes)
        if axes.shape != center.shape:
            raise InvalidValueError(
                f"semi-axes of shape {axes.shape} don't fit a center of shape {center.shape}"
            )
        if not (axes > 0).all():
            raise InvalidValueError(f"semi-axes must be positive, got {axes.min()}")
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "semi_axes", axes)

    def _gauge(self, point: ArrayLike) -> tuple[float, float]:
        """The computed ‖(point − center) ⊘ semi_axes‖₂ and its relative error: below 1 means inside."""
        offset = difference(point, self.center) / self.semi_axes.ravel()
        return float(np.linalg.norm(offset)), norm_error(offset.size)

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly inside."""
        return up(*self._gauge(point)) < 1.0

    def distance(self, point: ArrayLike) -> float:
        """A lower bound of the Euclidean distance to the ellipsoid.

        By Lagrange duality d² ≥ Σ t z²/(a² + t) − t for *every* t ≥ 0, with equality at the best one: bisection
        looks for that t, and whatever it ends at is sound.
        """
        offset, axes = difference(point, self.center), self.semi_axes.ravel()
        if down(*self._gauge(point)) < 1.0:
            return 0.0
        low, high = 0.0, float(np.linalg.norm(axes * offset)) + 1.0
        for _ in range(_DUAL_STEPS):
            t = (low + high) / 2
            slope = float(np.sum(np.square(axes * offset / (axes * axes + t)))) - 1.0
            low, high = (t, high) if slope > 0 else (low, t)
        terms = low * offset * offset / (axes * axes + low)
        square = down(float(np.sum(terms)), norm_error(offset.size)) - low
        return down(math.sqrt(square)) if square > 0 else 0.0

    def largest_inside(self, center: ArrayLike) -> Ellipsoid | None:
        """The same shape scaled by 1 − gauge: the triangle inequality in the scaled space."""
        return self._around(center, down(1.0 - up(*self._gauge(center))))

    def largest_outside(self, center: ArrayLike) -> Ellipsoid | None:
        """The same shape scaled by gauge − 1."""
        return self._around(center, down(down(*self._gauge(center)) - 1.0))

    def _around(self, center: ArrayLike, scale: float) -> Ellipsoid | None:
        axes = np.nextafter(self.semi_axes * scale, 0.0)
        return replace(self, center=np.asarray(center), semi_axes=axes) if (axes > 0).all() else None

    def log_volume(self) -> float:
        """Σ ln a_i plus the log-volume of the unit ball."""
        d = self.center.size
        return float(np.sum(np.log(self.semi_axes))) + d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
