"""ℓ2 and ℓ1 balls: one geometry, two norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import check_positive
from smoothcert.regions.base import Point, as_center, difference, norm_error
from smoothcert.regions.gauge import Body, GaugeBody
from smoothcert.rounding import down, up


@dataclass(frozen=True, eq=False)
class _Ball(GaugeBody):
    """{x : ‖x − center‖ < radius}."""

    center: Point
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_positive("radius", self.radius))
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
    def axes(self) -> Point:
        """The radius for each coordinate."""
        return np.broadcast_to(np.float64(self.radius), self.center.size)

    @property
    def reach(self) -> float:
        """The radius, also of the Euclidean ball that holds an ℓ1 ball: ‖·‖₂ ≤ ‖·‖₁."""
        return self.radius

    @property
    def inscribed_radius(self) -> float:
        """The radius."""
        return self.radius

    def scaled(self, factor: float, center: ArrayLike | None = None) -> Self | None:
        """The ball of at most ``factor`` times this radius; None if that leaves nothing."""
        return self._around(
            self.center if center is None else center, math.nextafter(self.radius * float(factor), 0.0)
        )

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
class L2Ball(_Ball):
    """Euclidean ball."""

    norm: ClassVar[str] = "l2"
    order: ClassVar[int] = 2
    kind: ClassVar[str] = "l2"


@dataclass(frozen=True, eq=False)
class L1Ball(_Ball):
    """Cross-polytope."""

    norm: ClassVar[str] = "l1"
    order: ClassVar[int] = 1
    kind: ClassVar[str] = "l1"


def _no_larger(ball: Body, bound: Body | None) -> Body | None:
    """The smaller of two concentric balls; ``ball`` itself if it is."""
    if bound is None or bound.reach >= ball.reach:
        return None if bound is None else ball
    return bound
