"""ℓ2 and ℓ1 balls: one geometry, two norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import check_positive
from smoothcert.regions.base import Point, as_center, difference, norm_error
from smoothcert.rounding import down, up


@dataclass(frozen=True, eq=False)
class _Ball:
    """{x : ‖x − center‖ < radius}."""

    norm: ClassVar[str]
    order: ClassVar[int]
    center: Point
    radius: float

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        object.__setattr__(self, "center", as_center(self.center))

    def _norm_of(self, point: ArrayLike) -> tuple[float, float]:
        """The computed ‖point − center‖ and the relative error it may have."""
        offset = difference(point, self.center)
        return float(np.linalg.norm(offset, self.order)), norm_error(offset.size)

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
        return replace(self, radius=down(self.radius, 4 * norm_error(self.center.size)))

    @property
    def reach(self) -> float:
        """Radius of a Euclidean ball around the center that holds the region: ‖·‖₂ ≤ ‖·‖₁."""
        return self.radius

    def _around(self, center: ArrayLike, radius: float) -> Self | None:
        return replace(self, center=np.asarray(center), radius=radius) if radius > 0 else None


@dataclass(frozen=True, eq=False)
class L2Ball(_Ball):
    """Euclidean ball."""

    norm: ClassVar[str] = "l2"
    order: ClassVar[int] = 2

    def log_volume(self) -> float:
        """ln( π^{d/2} r^d / Γ(d/2 + 1) )."""
        d = self.center.size
        return d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1) + d * math.log(self.radius)


@dataclass(frozen=True, eq=False)
class L1Ball(_Ball):
    """Cross-polytope."""

    norm: ClassVar[str] = "l1"
    order: ClassVar[int] = 1

    def log_volume(self) -> float:
        """ln( (2r)^d / d! )."""
        d = self.center.size
        return d * math.log(2 * self.radius) - math.lgamma(d + 1)
