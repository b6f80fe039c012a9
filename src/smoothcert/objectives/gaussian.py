"""Gaussian data augmentation (Cohen, Rosenfeld & Kolter, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothcert.objectives.base import OBJECTIVES, BatchNoise, Objective, draw_noise

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@OBJECTIVES.register("gaussian")
@dataclass(frozen=True)
class GaussianAugmentation(Objective):
    """Cross-entropy at ``x + σδ``, δ ~ N(0, I), one draw for each input."""

    paper: ClassVar[str] = "Cohen, Rosenfeld & Kolter, 2019"

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """Mean cross-entropy of the noisy batch."""
        from torch.nn import functional as F

        return F.cross_entropy(model(x + draw_noise(x, noise, generator)), y)
