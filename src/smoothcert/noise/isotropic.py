"""Noise of one scale in all coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from smoothcert.errors import check_positive
from smoothcert.noise.base import NOISES

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Isotropic:
    """Standard deviation ``sigma`` in every coordinate, for inputs of any shape."""

    name: ClassVar[str]
    sigma: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def describe(self) -> dict[str, Any]:
        """Name and σ."""
        return {"noise": self.name, "sigma": self.sigma}

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Any shape will do."""


@NOISES.register("gaussian")
@dataclass(frozen=True)
class Gaussian(_Isotropic):
    """ε ~ N(0, σ²I), isotropic."""

    name: ClassVar[str] = "gaussian"

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Draw N(0, σ²) into every element of ``out``."""
        out.normal_(0.0, self.sigma, generator=generator)


@NOISES.register("uniform")
@dataclass(frozen=True)
class Uniform(_Isotropic):
    """ε ~ U[−λ, λ]^d with λ = √3·σ, so that σ is its standard deviation as in the papers' tables."""

    name: ClassVar[str] = "uniform"

    @property
    def half_width(self) -> float:
        """λ: the largest absolute value a coordinate of the noise can take."""
        return self.sigma * math.sqrt(3.0)

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Draw U[−λ, λ] into every element of ``out``."""
        out.uniform_(-self.half_width, self.half_width, generator=generator)
