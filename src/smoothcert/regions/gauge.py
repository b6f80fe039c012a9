"""Gauge bodies: what balls, ellipsoids and cross-polytopes have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InvalidValueError
from smoothcert.regions.base import Point, difference, norm_error, stable_norm
from smoothcert.regions.pairs import inside_scale, outside_scale
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
    center: Point

    @property
    @abstractmethod
    def axes(self) -> Point:
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
            area = self.axes.size * math.log(self.reach)
            return down(area, _LOG_ERROR)
        logs = np.log(self.axes)
        return math.nextafter(
            math.fsum(logs.tolist()) - _LOG_ERROR * math.fsum(np.abs(logs).tolist()), -math.inf
        )

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
        gauge = stable_norm(unit / self.axes, self.order)
        return max(0.0, down(down(1.0 / gauge, norm_error(unit.size)) / size)) if gauge > 0 else math.inf

    def half_width(self, direction: ArrayLike) -> float:
        """Euclidean length from the center to the edge along ``direction``, of any length but 0, rounded down."""
        size, unit = self._unit(direction)
        if size == 0.0:
            raise InvalidValueError("a direction must have a coordinate that isn't 0")
        error = norm_error(unit.size)
        length, gauge = stable_norm(unit, 2), stable_norm(unit / self.axes, self.order)
        return max(0.0, down(down(length, error) / up(gauge, error)))

    def outside(self, candidate: Body) -> Body | None:
        """``candidate`` scaled by the largest s ≤ 1 for which it certainly doesn't meet this one; None if none."""
        q, r = self._seen_from_here(candidate)
        return _cut(candidate, 0.0 if q is None else outside_scale(q, r, self.order))

    def inside(self, candidate: Body) -> Body | None:
        """``candidate`` scaled by the largest s ≤ 1 for which it certainly lies in this one; None if none."""
        q, r = self._seen_from_here(candidate)
        return _cut(candidate, 0.0 if q is None else inside_scale(q, r, self.order))

    def disjoint(self, other: GaugeBody) -> bool:
        """True only if the two certainly have no point in common."""
        return self.outside(other) is other

    def _unit(self, vector: ArrayLike) -> tuple[float, Point]:
        """The largest coordinate's size, and the vector divided by it."""
        flat = difference(vector, np.zeros(self.center.shape))
        size = float(np.abs(flat).max())
        if not math.isfinite(size):
            raise InvalidValueError("a direction or a perturbation must be finite")
        return size, flat / size if size > 0 else flat

    def _seen_from_here(self, other: GaugeBody) -> tuple[Point | None, Point]:
        """Center and axes of ``other`` where this body is the unit ball; None for numbers too large or small."""
        if other.norm != self.norm:
            raise InvalidValueError(
                f"a region in {other.norm} can't be compared with one in {self.norm}: choose one norm"
            )
        offset = difference(other.center, self.center)
        least, greatest = min(self.inscribed_radius, other.inscribed_radius), max(self.reach, other.reach)
        fits = least >= _SMALLEST and greatest <= _LARGEST and float(np.abs(offset).max()) <= 2 * _LARGEST
        return (offset / self.axes if fits else None), other.axes / self.axes


def _cut(candidate: Body, scale: float) -> Body | None:
    if scale >= 1.0:
        return candidate
    return candidate.scaled(scale) if scale > 0 else None
