"""A network small enough to train on a laptop's processor in seconds, for 8×8 digits and the like."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape

CHANNELS = (16, 32)
HIDDEN = 128


class SmallCNN(nn.Module):
    """Two padded 3×3 convolutions, one pooling by two, two fully connected layers."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, CHANNELS[0], 3, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, padding=1)
        self.fc1 = nn.Linear(CHANNELS[1] * (height // 2) * (width // 2), HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        logits: Tensor = self.fc2(x)
        return logits


@ARCHITECTURES.register("small-cnn")
def small_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """SmallCNN for images with sides of at least 4."""
    channels, height, width = image_shape("small-cnn", input_shape, classes, least_side=4)
    return SmallCNN(channels, height, width, classes)
