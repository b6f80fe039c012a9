"""Certificates: the theorem that turns noise and probability bounds into a region around the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import Bound, ClassBounds, unanimous
from smoothcert.errors import InvalidValueError
from smoothcert.noise import DiagonalGaussian, DiagonalUniform, Gaussian, Noise, Uniform
from smoothcert.regions import CertifiedRegion, CrossPolytope, Ellipsoid, L1Ball, L2Ball
from smoothcert.regions.base import all_down
from smoothcert.rounding import down, normal_quantile_down, normal_quantile_up


class Certificate(Protocol):
    """If the bounds are true, the smoothed classifier answers the same everywhere in the region."""

    norm: ClassVar[str]
    source: ClassVar[str]
    ball: ClassVar[bool]
    """Whether the region is a ball, so that its radius says it all."""

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the largest certified ball; 0 when the bounds don't separate the classes."""
        ...

    def region(self, center: ArrayLike, bounds: ClassBounds) -> CertifiedRegion | None:
        """The certified region around ``center``, or None when there is nothing to certify."""
        ...


@dataclass(frozen=True)
class GaussianL2:
    """‖δ‖₂ < σ/2 (Φ⁻¹(p_A) − Φ⁻¹(p_B)), for probabilities of hard votes and for means of soft ones."""

    norm: ClassVar[str] = "l2"
    source: ClassVar[str] = "Cohen et al. 2019, Theorem 1; soft votes: MACER (Zhai et al. 2020), Theorem 2"
    ball: ClassVar[bool] = True
    noise: Gaussian

    def radius(self, bounds: ClassBounds) -> float:
        """Rounded down; infinite bounds can't occur because p_A < 1 for every finite tally."""
        return max(0.0, down(self.noise.sigma / 2 * _quantile_gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> L2Ball | None:
        """The open ℓ2 ball, or None."""
        radius = self.radius(bounds)
        return L2Ball(np.asarray(center, dtype=np.float64), radius) if radius > 0 else None


@dataclass(frozen=True)
class UniformL1:
    """‖δ‖₁ < λ (p_A − p_B), for probabilities of hard votes and for means of soft ones."""

    norm: ClassVar[str] = "l1"
    source: ClassVar[str] = "Yang et al. 2020, uniform smoothing"
    ball: ClassVar[bool] = True
    noise: Uniform

    def radius(self, bounds: ClassBounds) -> float:
        """Rounded down."""
        return max(0.0, down(self.noise.half_width * _share_gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> L1Ball | None:
        """The open ℓ1 ball, or None."""
        radius = self.radius(bounds)
        return L1Ball(np.asarray(center, dtype=np.float64), radius) if radius > 0 else None


@dataclass(frozen=True)
class DiagonalGaussianL2:
    """‖δ ⊘ σ‖₂ < ½ (Φ⁻¹(p_A) − Φ⁻¹(p_B)): an ellipsoid. A constant σ gives exactly the ball's radius."""

    norm: ClassVar[str] = "l2"
    source: ClassVar[str] = "Tecot et al., non-uniform smoothing, Theorem 3.1"
    ball: ClassVar[bool] = False
    noise: DiagonalGaussian

    def gap(self, bounds: ClassBounds) -> float:
        """½ (Φ⁻¹(p_A) − Φ⁻¹(p_B)) rounded down: the region's extent in units of the σ_i."""
        return max(0.0, down(_quantile_gap(bounds) / 2))

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the ℓ2 ball inside the ellipsoid: the smallest semi-axis, rounded down."""
        return max(0.0, down(self.noise.least / 2 * _quantile_gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> Ellipsoid | None:
        """The open ellipsoid, or None."""
        if not self.radius(bounds) > 0:
            return None
        return Ellipsoid(np.asarray(center), all_down(self.noise.sigmas / 2 * _quantile_gap(bounds)))


@dataclass(frozen=True)
class DiagonalUniformL1:
    """‖δ ⊘ λ‖₁ < p_A − p_B: a cross-polytope. A constant λ gives exactly the ball's radius."""

    norm: ClassVar[str] = "l1"
    source: ClassVar[str] = "docs/guarantees.md; for a constant scale Yang et al. 2020"
    ball: ClassVar[bool] = False
    noise: DiagonalUniform

    def gap(self, bounds: ClassBounds) -> float:
        """p_A − p_B rounded down: the region's extent in units of the λ_i."""
        return max(0.0, _share_gap(bounds))

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the ℓ1 ball inside: the smallest semi-axis, rounded down."""
        return max(0.0, down(float(self.noise.half_widths.min()) * _share_gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> CrossPolytope | None:
        """The open cross-polytope, or None."""
        if not self.radius(bounds) > 0:
            return None
        return CrossPolytope(np.asarray(center), all_down(self.noise.half_widths * _share_gap(bounds)))


def _quantile_gap(bounds: ClassBounds) -> float:
    """Φ⁻¹(p_A) − Φ⁻¹(p_B) from quantiles rounded towards each other; 0 when the classes aren't separated."""
    if not bounds.separated:
        return 0.0
    return normal_quantile_down(bounds.lower) - normal_quantile_up(bounds.upper)


def _share_gap(bounds: ClassBounds) -> float:
    """p_A − p_B rounded down; 0 when the classes aren't separated."""
    return down(bounds.lower - bounds.upper, 0.0) if bounds.separated else 0.0


def certificate_for(noise: Noise) -> Certificate:
    """The theorem that belongs to a noise."""
    match noise:
        case Gaussian():
            return GaussianL2(noise)
        case Uniform():
            return UniformL1(noise)
        case DiagonalGaussian():
            return DiagonalGaussianL2(noise)
        case DiagonalUniform():
            return DiagonalUniformL1(noise)
    raise InvalidValueError(f"no certificate is known for {type(noise).__name__} noise")


def largest_radius(noise: Noise, bound: Bound, n: int, alpha: float) -> float:
    """The ceiling that n and α impose: the radius of a unanimous vote (for the papers' bound σΦ⁻¹(α^{1/n})).

    A bound with looks has its ceiling at the last of them up to n.
    """
    votes = unanimous(bound.last_look(n), 2, bound.votes)
    return certificate_for(noise).radius(bound(votes, 0, alpha))
