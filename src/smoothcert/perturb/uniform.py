"""Uniform noise, which certifies ℓ1 balls and cross-polytopes (Yang et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.perturb.base import NOISES, Isotropic, Noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES, DiagonalNoise
from smoothcert.perturb.sampler import uniform_thresholds
from smoothcert.rounding import down

if TYPE_CHECKING:
    import torch


class _Flat(Noise):
    """‖δ ⊘ λ‖₁ < p_A − p_B with λ = √3·σ, for probabilities of hard votes and for means of soft ones.

    Yang et al. 2020, uniform smoothing; a scale for each coordinate: docs/guarantees.md.
    """

    kind: ClassVar[str] = "uniform"
    norm: ClassVar[str] = "l1"
    semi_axis: ClassVar[float] = math.sqrt(3.0)
    steep: ClassVar[bool] = False
    thresholds = staticmethod(uniform_thresholds)

    @staticmethod
    def gap(lower: float, upper: float) -> float:
        """Rounded down."""
        return down(lower - upper, 0.0)

    @staticmethod
    def soft_gap(first: Any, second: Any = None) -> Any:
        """p_A − p_B."""
        return first - (1 - first if second is None else second)

    @staticmethod
    def fill(out: torch.Tensor, generator: torch.Generator) -> None:
        out.uniform_(-math.sqrt(3.0), math.sqrt(3.0), generator=generator)

    @staticmethod
    def sample(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return generator.uniform(-math.sqrt(3.0), math.sqrt(3.0), shape)


@NOISES.register("uniform")
@dataclass(frozen=True)
class Uniform(Isotropic, _Flat):
    """ε ~ U[−λ, λ]^d with λ = √3·σ, so that σ is its standard deviation as in the papers' tables."""

    name: ClassVar[str] = "uniform"
    words: ClassVar[str] = "on [−√3σ, √3σ]; certifies an ℓ1 ball"


@DIAGONAL_NOISES.register("diagonal-uniform")
@dataclass(frozen=True, eq=False, repr=False)
class DiagonalUniform(DiagonalNoise, _Flat):
    """ε_i ~ U[−λ_i, λ_i] with λ_i = √3·σ_i, so that σ_i is its standard deviation."""

    name: ClassVar[str] = "diagonal-uniform"
