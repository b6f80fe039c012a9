"""Axis-aligned ellipsoids and cross-polytopes: regions of noise with its own scale in every dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.regions.base import Point, all_down, as_center, difference, norm_error, stable_norm
from smoothcert.regions.gauge import GaugeBody
from smoothcert.regions.pairs import outside_scale
from smoothcert.rounding import down, up


@dataclass(frozen=True, eq=False)
class _Stretched(GaugeBody):
    """{x : ‖(x − center) ⊘ semi_axes‖ < 1}."""

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

    @property
    def axes(self) -> Point:
        """The semi-axes, flat."""
        return self.semi_axes.ravel()

    def _gauge(self, point: ArrayLike) -> tuple[float, float]:
        """The computed ‖(point − center) ⊘ semi_axes‖ and its relative error: below 1 means inside."""
        offset = difference(point, self.center) / self.axes
        return stable_norm(offset, self.order), norm_error(offset.size)

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly inside."""
        return up(*self._gauge(point)) < 1.0

    def distance(self, point: ArrayLike) -> float:
        """A lower bound of the distance in the region's norm: how far a ball around ``point`` may grow."""
        return outside_scale(difference(point, self.center) / self.axes, 1.0 / self.axes, self.order)

    def largest_inside(self, center: ArrayLike) -> Self | None:
        """The same shape scaled by 1 − gauge: the triangle inequality in the scaled space."""
        return self.scaled(down(1.0 - up(*self._gauge(center))), center)

    def largest_outside(self, center: ArrayLike) -> Self | None:
        """The same shape scaled by gauge − 1."""
        return self.scaled(down(down(*self._gauge(center)) - 1.0), center)

    def core(self) -> Self:
        """The concentric body whose every float64 point is one that :meth:`contains` claims.

        As for balls: with e the error of a gauge, a point of gauge below 1 − 4e is computed to have less than
        (1 − 4e)(1 + e), and rounding that up by another e, a few last places included, stays below 1.
        """
        return replace(self, semi_axes=all_down(self.semi_axes, 4 * norm_error(self.center.size)))

    def scaled(self, factor: float, center: ArrayLike | None = None) -> Self | None:
        """This shape with axes of at most ``factor`` times these; None if that leaves nothing."""
        axes = np.nextafter(self.semi_axes * factor, 0.0)
        if not (axes > 0).all():
            return None
        return replace(self, center=self.center if center is None else np.asarray(center), semi_axes=axes)


@dataclass(frozen=True, eq=False)
class Ellipsoid(_Stretched):
    """{x : ‖(x − center) ⊘ semi_axes‖₂ < 1}."""

    norm: ClassVar[str] = "l2"
    order: ClassVar[int] = 2
    kind: ClassVar[str] = "ellipsoid"


@dataclass(frozen=True, eq=False)
class CrossPolytope(_Stretched):
    """{x : ‖(x − center) ⊘ semi_axes‖₁ < 1}: the ℓ1 ball stretched along its axes."""

    norm: ClassVar[str] = "l1"
    order: ClassVar[int] = 1
    kind: ClassVar[str] = "cross-polytope"
