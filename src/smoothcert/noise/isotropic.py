"""Noise of one scale in all coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import check_positive
from smoothcert.noise.base import NOISES
from smoothcert.noise.thresholds import Thresholds, normal_thresholds, uniform_thresholds


@dataclass(frozen=True)
class _Isotropic:
    """Standard deviation ``sigma`` in every coordinate, for inputs of any shape."""

    name: ClassVar[str]
    sigma: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        object.__setattr__(self, "sigma", float(self.sigma))

    def describe(self) -> dict[str, Any]:
        """Name and σ."""
        return {"noise": self.name, "sigma": self.sigma}

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    def scales(self) -> NDArray[np.float64]:
        """σ."""
        return np.array(self.sigma, dtype=np.float64)


@NOISES.register("gaussian")
@dataclass(frozen=True)
class Gaussian(_Isotropic):
    """ε ~ N(0, σ²I), isotropic."""

    name: ClassVar[str] = "gaussian"

    @staticmethod
    def thresholds(rho: Fraction) -> Thresholds:
        """Of the normal distribution."""
        return normal_thresholds(rho)


@NOISES.register("uniform")
@dataclass(frozen=True)
class Uniform(_Isotropic):
    """ε ~ U[−λ, λ]^d with λ = √3·σ, so that σ is its standard deviation as in the papers' tables."""

    name: ClassVar[str] = "uniform"

    @property
    def half_width(self) -> float:
        """λ: the largest absolute value a coordinate of the noise can take."""
        return self.sigma * math.sqrt(3.0)

    @staticmethod
    def thresholds(rho: Fraction) -> Thresholds:
        """Of the uniform distribution."""
        return uniform_thresholds(rho)
