"""Noise: a frozen description of the distribution added to an input, in the units of that input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from smoothcert.errors import check_positive
from smoothcert.registry import Registry

if TYPE_CHECKING:
    import torch


class Noise(Protocol):
    """A distribution with standard deviation ``sigma`` in every coordinate; knows only how to draw."""

    name: ClassVar[str]

    @property
    def sigma(self) -> float:
        """Standard deviation of each coordinate, the number by which papers index their models."""
        ...

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Overwrite the contiguous tensor ``out`` with fresh, independent noise."""
        ...


NOISES: Registry[type[Noise]] = Registry("noise")


@NOISES.register("gaussian")
@dataclass(frozen=True)
class Gaussian:
    """ε ~ N(0, σ²I), isotropic."""

    name: ClassVar[str] = "gaussian"
    sigma: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Draw N(0, σ²) into every element of ``out``."""
        out.normal_(0.0, self.sigma, generator=generator)


@NOISES.register("uniform")
@dataclass(frozen=True)
class Uniform:
    """ε ~ U[−λ, λ]^d with λ = √3·σ, so that σ is its standard deviation as in the papers' tables."""

    name: ClassVar[str] = "uniform"
    sigma: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    @property
    def half_width(self) -> float:
        """λ: the largest absolute value a coordinate of the noise can take."""
        return self.sigma * math.sqrt(3.0)

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Draw U[−λ, λ] into every element of ``out``."""
        out.uniform_(-self.half_width, self.half_width, generator=generator)
