"""Stability training (Li, Chen, Wang & Carin, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothcert.errors import check_not_negative
from smoothcert.knobs import knob
from smoothcert.objectives.base import OBJECTIVES, BatchNoise, Objective, StepCost, draw_noise

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@OBJECTIVES.register("stability")
@dataclass(frozen=True)
class Stability(Objective):
    """Cross-entropy at the clean input, plus ``lam`` times that of the noisy softmax against the clean one.

    ``CE(F(x), y) + λ·CE(F(x+δ), target F(x))``, differentiated through the target as well. Clean and noisy rows are
    batches of their own to batch norm, as released.

    Published: λ = 2; 1 for CIFAR-10 at σ = 1.0, for stability.
    """

    paper: ClassVar[str] = "Li, Chen, Wang & Carin, 2019"

    lam: float = knob(2.0, "weight of the stability term")

    def __post_init__(self) -> None:
        check_not_negative("lam", self.lam)

    def passes(self) -> StepCost:
        """The clean and the noisy row go through one after the other."""
        return StepCost(rows=1, training=2)

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """Mean over the batch."""
        from torch.nn import functional as F

        clean, noisy = model(x), model(x + draw_noise(x, noise, generator))
        return F.cross_entropy(clean, y) + self.lam * F.cross_entropy(noisy, clean.softmax(1))
