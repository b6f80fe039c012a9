"""Base classifiers whose smoothed version is known in closed form, so that the true radius is too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm


@dataclass(frozen=True)
class HalfSpace:
    """Class 0 where the first coordinate is below ``edge``, else class 1.

    Smoothed by any symmetric noise, an input at 0 has class 0 exactly up to distance ``edge``.
    """

    edge: float

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] >= self.edge).astype(np.int64)

    @property
    def true_radius(self) -> float:
        return self.edge


@dataclass(frozen=True)
class Bands:
    """Class 0 below ``low``, class 1 above ``high``, and between them ``middle`` more classes in thin bands.

    Classes 0 and 1 are half-spaces, the worst case of the theorem: an input at 0 moved by δ towards them has
    p_A = F(low − δ) and p_B = F(δ − high), equal at δ = (low + high)/2. That is the true radius as long as no
    band overtakes class 0 before, which many bands make sure of.
    """

    low: float
    high: float
    middle: int

    @property
    def classes(self) -> int:
        return 2 + self.middle

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        z = batch[:, 0].astype(np.float64)
        band = 2 + np.floor((z - self.low) / (self.high - self.low) * self.middle).astype(np.int64)
        return np.where(z < self.low, 0, np.where(z >= self.high, 1, np.clip(band, 2, self.classes - 1)))

    @property
    def true_radius(self) -> float:
        return (self.low + self.high) / 2

    @classmethod
    def with_probabilities(cls, p_a: float, p_b: float, sigma: float, middle: int) -> Bands:
        """Bands that Gaussian noise of scale sigma splits as p_a, p_b and the rest."""
        return cls(float(sigma * norm.ppf(p_a)), float(-sigma * norm.ppf(p_b)), middle)


@dataclass(frozen=True)
class Probit:
    """Soft classifier z_0 = Φ((edge − x₁)/softness), z_1 = 1 − z_0.

    E z_0(x + N(0, σ²)) = Φ((edge − x₁)/√(σ² + softness²)): the soft-smoothed class changes at distance edge.
    """

    edge: float
    softness: float

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        first = ndtr((self.edge - batch[:, 0].astype(np.float64)) / self.softness)
        return np.stack([first, 1 - first], axis=1)

    @property
    def true_radius(self) -> float:
        return self.edge
