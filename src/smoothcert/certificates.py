"""Certificates: the theorem that turns noise and probability bounds into a region around the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import Bound, ClassBounds, unanimous
from smoothcert.noise import Noise
from smoothcert.regions import BALLS, STRETCHED, CertifiedRegion
from smoothcert.regions.base import all_down
from smoothcert.rounding import down


@dataclass(frozen=True)
class Certificate:
    """If the bounds are true, the smoothed classifier answers the same wherever ‖δ ⊘ semi-axes‖ < gap(p_A, p_B).

    Semi-axes, gap and norm are the noise's. A constant scale vector gives exactly the ball's radius.
    """

    noise: Noise

    @property
    def norm(self) -> str:
        """Of the region: l1 or l2."""
        return self.noise.norm

    @property
    def ball(self) -> bool:
        """Whether the region is a ball, so that its radius says it all."""
        return not self.noise.stretched

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the largest certified ball, rounded down; 0 when the bounds don't separate the classes."""
        return max(0.0, down(self.noise.smallest_sigma * self.noise.semi_axis * self._gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> CertifiedRegion | None:
        """The open region around ``center``, or None when there is nothing to certify."""
        radius, point = self.radius(bounds), np.asarray(center, dtype=np.float64)
        if not radius > 0:
            return None
        if self.ball:
            return BALLS[self.norm](point, radius)
        return STRETCHED[self.norm](point, all_down(self.noise.semi_axes() * self._gap(bounds)))

    def _gap(self, bounds: ClassBounds) -> float:
        return self.noise.gap(bounds.lower, bounds.upper) if bounds.separated else 0.0


def certificate_for(noise: Noise) -> Certificate:
    """The theorem that belongs to a noise."""
    return Certificate(noise)


def largest_radius(noise: Noise, bound: Bound, n: int, alpha: float) -> float:
    """The ceiling that n and α impose: the radius of a unanimous vote (for the papers' bound σΦ⁻¹(α^{1/n})).

    A bound with looks has its ceiling at the last of them up to n.
    """
    votes = unanimous(bound.last_look(n), 2, bound.votes)
    return certificate_for(noise).radius(bound(votes, 0, alpha))
