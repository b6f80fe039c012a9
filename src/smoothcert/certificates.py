"""Certificates: the theorem that turns noise and probability bounds into a region around the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import Bound, ClassBounds, unanimous
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Gaussian, Noise, Uniform
from smoothcert.regions import CertifiedRegion, L1Ball, L2Ball
from smoothcert.rounding import down, normal_quantile_down, normal_quantile_up


class Certificate(Protocol):
    """If the bounds are true, the smoothed classifier answers the same everywhere in the region."""

    norm: ClassVar[str]
    source: ClassVar[str]

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the certified ball; 0 when the bounds don't separate the classes."""
        ...

    def region(self, center: ArrayLike, bounds: ClassBounds) -> CertifiedRegion | None:
        """The certified region around ``center``, or None when there is nothing to certify."""
        ...


@dataclass(frozen=True)
class GaussianL2:
    """‖δ‖₂ < σ/2 (Φ⁻¹(p_A) − Φ⁻¹(p_B)), for probabilities of hard votes and for means of soft ones."""

    norm: ClassVar[str] = "l2"
    source: ClassVar[str] = "Cohen et al. 2019, Theorem 1; soft votes: MACER (Zhai et al. 2020), Theorem 2"
    noise: Gaussian

    def radius(self, bounds: ClassBounds) -> float:
        """Rounded down; infinite bounds can't occur because p_A < 1 for every finite tally."""
        if not bounds.separated:
            return 0.0
        gap = normal_quantile_down(bounds.lower) - normal_quantile_up(bounds.upper)
        return max(0.0, down(self.noise.sigma / 2 * gap))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> L2Ball | None:
        """The open ℓ2 ball, or None."""
        radius = self.radius(bounds)
        return L2Ball(np.asarray(center, dtype=np.float64), radius) if radius > 0 else None


@dataclass(frozen=True)
class UniformL1:
    """‖δ‖₁ < λ (p_A − p_B), for probabilities of hard votes and for means of soft ones."""

    norm: ClassVar[str] = "l1"
    source: ClassVar[str] = "Yang et al. 2020, uniform smoothing"
    noise: Uniform

    def radius(self, bounds: ClassBounds) -> float:
        """Rounded down."""
        if not bounds.separated:
            return 0.0
        return max(0.0, down(self.noise.half_width * down(bounds.lower - bounds.upper, 0.0)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> L1Ball | None:
        """The open ℓ1 ball, or None."""
        radius = self.radius(bounds)
        return L1Ball(np.asarray(center, dtype=np.float64), radius) if radius > 0 else None


def certificate_for(noise: Noise) -> Certificate:
    """The theorem that belongs to a noise."""
    match noise:
        case Gaussian():
            return GaussianL2(noise)
        case Uniform():
            return UniformL1(noise)
    raise InvalidValueError(f"no certificate is known for {type(noise).__name__} noise")


def largest_radius(noise: Noise, bound: Bound, n: int, alpha: float) -> float:
    """The ceiling that n and α impose: the radius of a unanimous vote (for the papers' bound σΦ⁻¹(α^{1/n}))."""
    return certificate_for(noise).radius(bound(unanimous(n, 2, bound.votes), 0, alpha))
