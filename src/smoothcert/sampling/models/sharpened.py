"""A model whose scores are multiplied by a number: soft votes at another temperature."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from smoothcert.errors import check_positive


class Sharpened(nn.Module):
    """``module`` with its scores times ``beta``: the softmax at inverse temperature β, as MACER's Soft-RS has it.

    β is a buffer, so that the hash of the model in a run's statement tells it from the plain one. Labels stay the same.
    """

    beta: Tensor

    def __init__(self, module: nn.Module, beta: float) -> None:
        super().__init__()
        check_positive("sharpen", beta)
        self.module = module
        self.register_buffer("beta", torch.tensor(float(beta)))

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        return cast(Tensor, self.module(x)) * self.beta
