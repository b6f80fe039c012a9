"""The model's first layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, check_positive


class Normalize(nn.Module):
    """Standardises each channel: ``(x - mean) / std``.

    It is part of the model so that noise is added, and radii are measured, in the units of the input
    ([0, 1] pixels) and not in standard deviations of the training set.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise InvalidValueError(f"mean and std need one value per channel each, got {mean} and {std}")
        for value in mean:
            if not math.isfinite(value):
                raise InvalidValueError(f"mean must be finite, got {value}")
        for value in std:
            check_positive("std", value)
        # Not persistent: the spec holds these numbers, and a second copy in the weights could contradict it.
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Standardise a batch of shape (n, channels, height, width)."""
        return (x - self.mean) / self.std
