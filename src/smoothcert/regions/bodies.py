"""Balls, ellipsoids and cross-polytopes: open gauge bodies, with float64 geometry that rounds inward."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, check_positive
from smoothcert.regions import geometry
from smoothcert.rounding import down, up

Body = TypeVar("Body", bound="GaugeBody")

_SMALLEST, _LARGEST = 1e-100, 1e100
_LOG_ERROR = 2.0**-50  # relative, of one logarithm


class GaugeBody(ABC):
    """{x : ‖(x − center) ⊘ axes‖ < 1}, open; all sizes are rounded down and computed in logarithms.

    All answers are float64 and err inward: a region never claims a point it may miss.
    """

    norm: ClassVar[str]
    order: ClassVar[int]
    kind: ClassVar[str]
    center: geometry.Point

    def __init_subclass__(cls, norm: str = "", kind: str = "") -> None:
        super().__init_subclass__()
        if norm:
            cls.norm, cls.order, cls.kind = norm, int(norm.removeprefix("l")), kind or norm

    @property
    @abstractmethod
    def axes(self) -> geometry.Point:
        """The semi-axes, flat, one for each coordinate."""

    @abstractmethod
    def scaled(self, factor: float, center: ArrayLike | None = None) -> Self | None:
        """This shape with axes of at most ``factor`` times these; None if that leaves nothing."""

    @abstractmethod
    def core(self) -> Self:
        """The concentric body whose every float64 point is one that ``contains`` claims."""

    @property
    def reach(self) -> float:
        """Radius of a Euclidean ball around the center that holds the body: ‖·‖₂ ≤ ‖·‖₁."""
        return float(self.axes.max())

    @property
    def inscribed_radius(self) -> float:
        """The smallest semi-axis: radius of the largest ball of the same norm around the center inside."""
        return float(self.axes.min())

    @property
    def certified_area(self) -> float:
        """Σ ln a_i, the papers' size of a region: comparable between regions of one norm and dimension."""
        if self.inscribed_radius == self.reach:
            return down(self.axes.size * math.log(self.reach), _LOG_ERROR)
        logs = np.log(self.axes)
        error = _LOG_ERROR * math.fsum(np.abs(logs).tolist())
        return math.nextafter(math.fsum(logs.tolist()) - error, -math.inf)

    @property
    def volume_radius(self) -> float:
        """(Π a_i)^{1/d}: radius of the ball of the same norm and volume; equal axes give exactly the one."""
        least, greatest = self.inscribed_radius, self.reach
        if least == greatest:
            return least
        mean = self.certified_area / self.axes.size
        return min(max(down(math.exp(mean), 1e-14 + 4e-16 * abs(mean)), least), greatest)

    def log_volume(self) -> float:
        """ln of the volume: the certified area plus that of the unit ball, π^{d/2}/Γ(d/2 + 1) or 2^d/d!."""
        d = self.axes.size
        if self.order == 2:
            return self.certified_area + d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
        return self.certified_area + d * math.log(2) - math.lgamma(d + 1)

    def covers(self, delta: ArrayLike) -> bool:
        """True only if center + ``delta``, in exact arithmetic, is certainly inside."""
        return self.scale_to_edge(delta) > 1.0

    def scale_to_edge(self, delta: ArrayLike) -> float:
        """By which factor ``delta`` may be multiplied and stay inside (any smaller one), rounded down."""
        size, unit = self._unit(delta)
        if size == 0.0:
            return math.inf
        gauge = geometry.stable_norm(unit / self.axes, self.order)
        if gauge == 0:
            return math.inf
        return max(0.0, down(down(1.0 / gauge, geometry.norm_error(unit.size)) / size))

    def half_width(self, direction: ArrayLike) -> float:
        """Euclidean length from the center to the edge along ``direction``, of any length but 0, rounded down."""
        size, unit = self._unit(direction)
        if size == 0.0:
            raise InvalidValueError("a direction must have a coordinate that isn't 0")
        error = geometry.norm_error(unit.size)
        length, gauge = geometry.stable_norm(unit, 2), geometry.stable_norm(unit / self.axes, self.order)
        return max(0.0, down(down(length, error) / up(gauge, error)))

    def outside(self, candidate: Body) -> Body | None:
        """``candidate`` scaled by the largest s ≤ 1 for which it certainly doesn't meet this one; None if none."""
        q, r = self._seen_from_here(candidate)
        return _cut(candidate, 0.0 if q is None else geometry.outside_scale(q, r, self.order))

    def inside(self, candidate: Body) -> Body | None:
        """``candidate`` scaled by the largest s ≤ 1 for which it certainly lies in this one; None if none."""
        q, r = self._seen_from_here(candidate)
        return _cut(candidate, 0.0 if q is None else geometry.inside_scale(q, r, self.order))

    def disjoint(self, other: GaugeBody) -> bool:
        """True only if the two certainly have no point in common."""
        return self.outside(other) is other

    def _unit(self, vector: ArrayLike) -> tuple[float, geometry.Point]:
        """The largest coordinate's size, and the vector divided by it."""
        flat = geometry.difference(vector, np.zeros(self.center.shape))
        size = float(np.abs(flat).max())
        if not math.isfinite(size):
            raise InvalidValueError("a direction or a perturbation must be finite")
        return size, flat / size if size > 0 else flat

    def _seen_from_here(self, other: GaugeBody) -> tuple[geometry.Point | None, geometry.Point]:
        """Center and axes of ``other`` where this body is the unit ball; None for numbers too large or small."""
        if other.norm != self.norm:
            raise InvalidValueError(f"a region in {other.norm} isn't one in {self.norm}: choose one norm")
        offset = geometry.difference(other.center, self.center)
        least, greatest = min(self.inscribed_radius, other.inscribed_radius), max(self.reach, other.reach)
        fits = least >= _SMALLEST and greatest <= _LARGEST and float(np.abs(offset).max()) <= 2 * _LARGEST
        return (offset / self.axes if fits else None), other.axes / self.axes


def _cut(candidate: Body, scale: float) -> Body | None:
    if scale >= 1.0:
        return candidate
    return candidate.scaled(scale) if scale > 0 else None


@dataclass(frozen=True, eq=False)
class _Ball(GaugeBody):
    """{x : ‖x − center‖ < radius}."""

    center: geometry.Point
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_positive("radius", self.radius))
        object.__setattr__(self, "center", geometry.as_center(self.center))

    def _norm_of(self, point: ArrayLike) -> tuple[float, float]:
        """The computed ‖point − center‖ and the relative error it may have."""
        offset = geometry.difference(point, self.center)
        return float(np.linalg.norm(offset, self.order)), geometry.norm_error(offset.size)

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly closer to the center than the radius."""
        return up(*self._norm_of(point)) < self.radius

    def distance(self, point: ArrayLike) -> float:
        """A lower bound of the distance to the ball, in the ball's norm."""
        return max(0.0, down(down(*self._norm_of(point)) - self.radius))

    def largest_inside(self, center: ArrayLike) -> Self | None:
        """Radius r − ‖center − c‖: by the triangle inequality that ball lies in this one."""
        return self._around(center, down(self.radius - up(*self._norm_of(center))))

    def largest_outside(self, center: ArrayLike) -> Self | None:
        """Radius ‖center − c‖ − r: open balls that far apart don't meet."""
        return self._around(center, down(down(*self._norm_of(center)) - self.radius))

    def core(self) -> Self:
        """The concentric ball whose every float64 point is one that :meth:`contains` claims.

        With e the error of a norm, a point closer than r(1 − 4e) is computed to lie at less than r(1 − 4e)(1 + e), and
        rounding that up by another e, a few last places included, stays below r.
        """
        return replace(self, radius=down(self.radius, 4 * geometry.norm_error(self.center.size)))

    @property
    def axes(self) -> geometry.Point:
        return np.broadcast_to(np.float64(self.radius), self.center.size)

    @property
    def reach(self) -> float:
        """The radius, also of the Euclidean ball that holds an ℓ1 ball: ‖·‖₂ ≤ ‖·‖₁."""
        return self.radius

    @property
    def inscribed_radius(self) -> float:
        return self.radius

    def scaled(self, factor: float, center: ArrayLike | None = None) -> Self | None:
        """The ball of at most ``factor`` times this radius; None if that leaves nothing."""
        radius = math.nextafter(self.radius * float(factor), 0.0)
        return self._around(self.center if center is None else center, radius)

    def outside(self, candidate: Body) -> Body | None:
        """As of any body; of two balls by their radii, without a search."""
        if type(candidate) is not type(self):
            return super().outside(candidate)
        return _no_larger(candidate, self.largest_outside(candidate.center))

    def inside(self, candidate: Body) -> Body | None:
        """As of any body; of two balls by their radii, without a search."""
        if type(candidate) is not type(self):
            return super().inside(candidate)
        return _no_larger(candidate, self.largest_inside(candidate.center))

    def _around(self, center: ArrayLike, radius: float) -> Self | None:
        return replace(self, center=np.asarray(center), radius=radius) if radius > 0 else None


@dataclass(frozen=True, eq=False)
class L2Ball(_Ball, norm="l2"):
    """Euclidean ball."""


@dataclass(frozen=True, eq=False)
class L1Ball(_Ball, norm="l1"):
    """Cross-polytope."""


def _no_larger(ball: Body, bound: Body | None) -> Body | None:
    """The smaller of two concentric balls; ``ball`` itself if it is."""
    return ball if bound is not None and bound.reach >= ball.reach else bound


@dataclass(frozen=True, eq=False)
class _Stretched(GaugeBody):
    """{x : ‖(x − center) ⊘ semi_axes‖ < 1}."""

    center: geometry.Point
    semi_axes: NDArray[np.float64]

    def __post_init__(self) -> None:
        center, axes = geometry.as_center(self.center), geometry.as_center(self.semi_axes)
        if axes.shape != center.shape:
            raise InvalidValueError(f"semi-axes of shape {axes.shape} don't fit a center of {center.shape}")
        if not (axes > 0).all():
            raise InvalidValueError(f"semi-axes must be positive, got {axes.min()}")
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "semi_axes", axes)

    @property
    def axes(self) -> geometry.Point:
        return self.semi_axes.ravel()

    def _gauge(self, point: ArrayLike) -> tuple[float, float]:
        """The computed ‖(point − center) ⊘ semi_axes‖ and its relative error: below 1 means inside."""
        offset = geometry.difference(point, self.center) / self.axes
        return geometry.stable_norm(offset, self.order), geometry.norm_error(offset.size)

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly inside."""
        return up(*self._gauge(point)) < 1.0

    def distance(self, point: ArrayLike) -> float:
        """A lower bound of the distance in the region's norm: how far a ball around ``point`` may grow."""
        offset = geometry.difference(point, self.center) / self.axes
        return geometry.outside_scale(offset, 1.0 / self.axes, self.order)

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
        error = 4 * geometry.norm_error(self.center.size)
        return replace(self, semi_axes=geometry.all_down(self.semi_axes, error))

    def scaled(self, factor: float, center: ArrayLike | None = None) -> Self | None:
        """This shape with axes of at most ``factor`` times these; None if that leaves nothing."""
        axes = np.nextafter(self.semi_axes * factor, 0.0)
        if not (axes > 0).all():
            return None
        return replace(self, center=self.center if center is None else np.asarray(center), semi_axes=axes)


@dataclass(frozen=True, eq=False)
class Ellipsoid(_Stretched, norm="l2", kind="ellipsoid"):
    """{x : ‖(x − center) ⊘ semi_axes‖₂ < 1}."""


@dataclass(frozen=True, eq=False)
class CrossPolytope(_Stretched, norm="l1", kind="cross-polytope"):
    """{x : ‖(x − center) ⊘ semi_axes‖₁ < 1}: the ℓ1 ball stretched along its axes."""


CertifiedRegion = L2Ball | L1Ball | Ellipsoid | CrossPolytope
"""What a certificate may certify."""

BALLS: dict[str, type[L2Ball] | type[L1Ball]] = {"l2": L2Ball, "l1": L1Ball}
"""Balls by norm."""
STRETCHED: dict[str, type[Ellipsoid] | type[CrossPolytope]] = {"l2": Ellipsoid, "l1": CrossPolytope}
"""Regions with a semi-axis for each coordinate, by norm."""
