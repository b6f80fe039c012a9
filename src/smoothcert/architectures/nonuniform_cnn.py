"""The network of the non-uniform smoothing paper's MNIST and Fashion-MNIST experiments.

The paper says "two convolution layers, a max-pool, and two fully-connected layers" and no more: the sizes
are ours, those common in introductions to PyTorch, without dropout. 1,199,882 parameters at 28×28.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape


class NonuniformCNN(nn.Module):
    """Two unpadded 3×3 convolutions (32 and 64 channels), pooled by two, then layers of 128 and C units."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        logits: Tensor = self.fc2(x)
        return logits


@ARCHITECTURES.register("nonuniform-cnn")
def nonuniform_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """NonuniformCNN for images with sides of at least 6."""
    channels, height, width = image_shape("nonuniform-cnn", input_shape, classes, least_side=6)
    return NonuniformCNN(channels, height, width, classes)
