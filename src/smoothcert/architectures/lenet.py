"""The LeNet of the MNIST experiments (SmoothMix, MACER, consistency): 431,080 parameters at 28×28."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape


class LeNet(nn.Module):
    """Two 5×5 convolutions (20 and 50 channels), each pooled by two, then layers of 500 and C units."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(50 * _side_after(height) * _side_after(width), 500)
        self.fc2 = nn.Linear(500, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        logits: Tensor = self.fc2(x)
        return logits


def _side_after(side: int) -> int:
    """The side of the feature map that two unpadded 5×5 convolutions, each pooled by two, leave."""
    return ((side - 4) // 2 - 4) // 2


@ARCHITECTURES.register("lenet")
def lenet(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet for images with sides of at least 16."""
    channels, height, width = image_shape("lenet", input_shape, classes, least_side=16)
    return LeNet(channels, height, width, classes)
