"""Small networks of two convolutions: one that trains on a laptop in seconds, one of the non-uniform paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape


class SmallCNN(nn.Module):
    """Two 3×3 convolutions of ``widths`` channels, one pooling by two, two fully connected layers."""

    def __init__(
        self, shape: tuple[int, int, int], classes: int, widths: tuple[int, int], padding: int
    ) -> None:
        super().__init__()
        channels, height, width = shape
        lost = 4 * (1 - padding)
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=padding)
        self.conv2 = nn.Conv2d(widths[0], widths[1], 3, padding=padding)
        self.fc1 = nn.Linear(widths[1] * ((height - lost) // 2) * ((width - lost) // 2), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        logits: Tensor = self.fc2(x)
        return logits


@ARCHITECTURES.register("small-cnn")
def small_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """16 and 32 channels, padded: for 8×8 digits and anything with sides of at least 4."""
    shape = image_shape("small-cnn", input_shape, classes, least_side=4)
    return SmallCNN(shape, classes, widths=(16, 32), padding=1)


@ARCHITECTURES.register("nonuniform-cnn")
def nonuniform_cnn(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """32 and 64 channels, unpadded: for the non-uniform smoothing paper's MNIST and Fashion-MNIST experiments.

    Two convolutions, a max-pool and two linear layers, of the released code's sizes; its dropout (a quarter and a half,
    in training) is left out. 1,199,882 parameters at 28×28.
    """
    shape = image_shape("nonuniform-cnn", input_shape, classes, least_side=6)
    return SmallCNN(shape, classes, widths=(32, 64), padding=0)
