"""The residual networks of He et al. (2016), section 4.2, sized for CIFAR-10.

Parameters are named, and blocks that change the shape are bridged (1×1 convolution and batch norm), as in
the checkpoints of Cohen et al. (2019), so that those load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape

WIDTHS = (16, 32, 64)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to their input."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outward)
        self.conv2 = nn.Conv2d(outward, outward, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outward)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inward != outward:
            self.downsample = nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The next feature map."""
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(change + self.downsample(x))


class CifarResNet(nn.Module):
    """A 3×3 convolution, three stages of ``blocks`` residual blocks, the spatial mean, one linear layer."""

    def __init__(self, channels: int, classes: int, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], blocks, stride=1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], blocks, stride=2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], blocks, stride=2)
        self.fc = nn.Linear(WIDTHS[2], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits


def _stage(inward: int, outward: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [ResidualBlock(outward, outward, stride=1) for _ in range(blocks - 1)]
    return nn.Sequential(ResidualBlock(inward, outward, stride), *rest)


def _resnet(depth: int, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, _, _ = image_shape(f"cifar_resnet{depth}", input_shape, classes, least_side=8)
    # Six convolutions per block of the three stages, one before them and one linear layer after.
    return CifarResNet(channels, classes, blocks=(depth - 2) // 6)


@ARCHITECTURES.register("cifar_resnet20")
def cifar_resnet20(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of 20 layers, for images with sides of at least 8."""
    return _resnet(20, input_shape, classes)


@ARCHITECTURES.register("cifar_resnet110")
def cifar_resnet110(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of 110 layers, for images with sides of at least 8."""
    return _resnet(110, input_shape, classes)
