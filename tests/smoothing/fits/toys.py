"""Models and data whose best σ is known."""

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.datasets.base import Dataset

WEIGHTS = (4.0, 1.0, 0.5, 0.25)


class Linear(nn.Module):
    """Two classes on either side of w·x = 0; so steep that its softmax is its vote."""

    def __init__(self, weights: tuple[float, ...] = WEIGHTS, steepness: float = 30.0) -> None:
        super().__init__()
        self.w = nn.Parameter(steepness * torch.tensor(weights))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        score = x.flatten(1) @ self.w
        return torch.stack([score, -score], 1)


def points(inputs: int = 160, shape: tuple[int, ...] = (4,), label: int = 0) -> Dataset:
    """The same point many times, at w·x = 1.4375, in class ``label`` of two."""
    stored = np.full((inputs, *shape), 0.25, dtype=np.float32)
    return Dataset("points", stored, np.full(inputs, label, dtype=np.int64), ("a", "b"))
