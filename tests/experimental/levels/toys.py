"""Pictures of 4×4, and models of them whose radii at every level are known."""

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.datasets.base import Dataset

SIDE = 4


def pictures(inputs: int = 120, seed: int = 0) -> Dataset:
    """Bright ones of class 1 and dark ones of class 0."""
    random = np.random.default_rng(seed)
    bright = np.arange(inputs) % 2
    x = random.normal(0.0, 0.3, (inputs, 1, SIDE, SIDE)) + 2.0 * (2 * bright - 1)[:, None, None, None]
    return Dataset("pictures", x.astype(np.float32), bright.astype(np.int64), ("dark", "bright"))


class Half(nn.Module):
    """Class 1 where the first pixel is positive: its radius is that pixel's size, whatever σ is."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("sign", torch.tensor(sign))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of two classes."""
        score = x[:, 0, 0, 0] * self.sign
        return torch.stack([-score, score], 1)
