"""Gaussian noise, which certifies ℓ2 balls and ellipsoids (Cohen et al. 2019; MACER; Tecot et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.perturb.base import NOISES, Isotropic, Noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES, DiagonalNoise
from smoothcert.perturb.sampler import normal_thresholds
from smoothcert.rounding import normal_quantile_down, normal_quantile_up

if TYPE_CHECKING:
    import torch


class _Normal(Noise):
    """‖δ ⊘ σ‖₂ < ½ (Φ⁻¹(p_A) − Φ⁻¹(p_B)), for probabilities of hard votes and for means of soft ones.

    Cohen et al. 2019, Theorem 1; soft votes: MACER (Zhai et al. 2020), Theorem 2; a scale for each coordinate: Tecot et
    al., non-uniform smoothing, Theorem 3.1.
    """

    kind: ClassVar[str] = "gaussian"
    norm: ClassVar[str] = "l2"
    semi_axis: ClassVar[float] = 1.0
    steep: ClassVar[bool] = True
    thresholds = staticmethod(normal_thresholds)

    @staticmethod
    def gap(lower: float, upper: float) -> float:
        """From quantiles rounded towards each other; infinite bounds can't occur because p_A < 1 for every tally."""
        return (normal_quantile_down(lower) - normal_quantile_up(upper)) / 2

    @staticmethod
    def soft_gap(first: Any, second: Any = None) -> Any:
        """½ (Φ⁻¹(p_A) − Φ⁻¹(p_B)), which for p_B = 1 − p_A is Φ⁻¹(p_A)."""
        return _quantile(first) if second is None else (_quantile(first) - _quantile(second)) / 2

    @staticmethod
    def fill(out: torch.Tensor, generator: torch.Generator) -> None:
        out.normal_(generator=generator)

    @staticmethod
    def sample(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return generator.normal(0.0, 1.0, shape)


@NOISES.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Isotropic, _Normal):
    """ε ~ N(0, σ²I), isotropic."""

    name: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "certifies an ℓ2 ball"


@DIAGONAL_NOISES.register("diagonal-gaussian")
@dataclass(frozen=True, eq=False, repr=False)
class DiagonalGaussian(DiagonalNoise, _Normal):
    """ε_i ~ N(0, σ_i²)."""

    name: ClassVar[str] = "diagonal-gaussian"


def _quantile(p: Any) -> Any:
    if not hasattr(p, "requires_grad"):
        from scipy.special import ndtri

        return ndtri(p)
    import torch

    return torch.special.ndtri(p)
