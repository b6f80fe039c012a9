"""What the residual networks of He et al. (2016) share.

Parameters are named, and blocks that change the shape are bridged (1×1 convolution and batch norm), as in
torchvision and in the checkpoints of Cohen et al. (2019), so that those load.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with batch norm, added to their input."""

    expansion = 1

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _bridge(inward, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The next feature map."""
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(change + self.downsample(x))


class Bottleneck(nn.Module):
    """Convolutions of 1×1, 3×3 and 1×1 with batch norm, added to their input; four times ``width`` come out.

    The stride is in the 3×3 convolution (ResNet "v1.5"), where torchvision and all weights trained with it
    have it; the paper has it in the first 1×1.
    """

    expansion = 4

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        outward = width * self.expansion
        self.conv1 = nn.Conv2d(inward, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outward, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outward)
        self.downsample = _bridge(inward, outward, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The next feature map."""
        inner = F.relu(self.bn1(self.conv1(x)))
        inner = F.relu(self.bn2(self.conv2(inner)))
        return F.relu(self.bn3(self.conv3(inner)) + self.downsample(x))


class ResNet(nn.Module):
    """A first convolution and pooling, stages of residual blocks, the spatial mean, one linear layer.

    ``stages`` holds the width and the number of blocks of each stage. Each but the first halves the sides. Without
    ``first_norm``, no batch norm follows the first convolution.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        first: nn.Conv2d,
        pool: nn.Module,
        stages: Sequence[tuple[int, int]],
        classes: int,
        first_norm: bool = True,
    ) -> None:
        super().__init__()
        self.conv1 = first
        self.bn1 = nn.BatchNorm2d(first.out_channels) if first_norm else nn.Identity()
        self.maxpool = pool
        self._stages = [f"layer{number}" for number in range(1, len(stages) + 1)]
        inward = first.out_channels
        for name, (width, blocks) in zip(self._stages, stages):
            stride = 1 if name == "layer1" else 2
            outward = width * block.expansion
            rest = [block(outward, width, stride=1) for _ in range(blocks - 1)]
            self.add_module(name, nn.Sequential(block(inward, width, stride), *rest))
            inward = outward
        self.fc = nn.Linear(inward, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = getattr(self, name)(x)
        logits: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits


def _bridge(inward: int, outward: int, stride: int) -> nn.Module:
    """What carries a block's input past it, to where the block's output has another shape."""
    if stride == 1 and inward == outward:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward))
