"""Our networks: the papers' for MNIST, one that trains on a laptop in seconds, and residual ones (He et al., 2016).

Of the residual networks, parameters are named, and blocks that change the shape are bridged (1×1 convolution and batch
norm), as in torchvision and in the checkpoints of Cohen et al. (2019), so that those load. For small images a 3×3
convolution comes first, and no pooling after it: 20 and 110 layers are He et al., section 4.2, the latter also that of
Cohen et al. (2019); 18 layers have the widths of the ImageNet ResNet-18. Data-dependent smoothing (Alfarra et al.,
2022) calls its network ResNet-18; the released one keeps ImageNet's first layers, and is here by its own name.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.architectures.base import ARCHITECTURES, image_shape


class LeNet(nn.Module):
    """The LeNet of the MNIST experiments (SmoothMix, MACER, consistency): 431,080 parameters at 28×28.

    Two 5×5 convolutions (20 and 50 channels), each pooled by two, then layers of 500 and C units.
    """

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


_WIDE = [(64, 2), (128, 2), (256, 2), (512, 2)]


def _resnet(
    name: str, stages: Sequence[tuple[int, int]], input_shape: tuple[int, ...], classes: int
) -> nn.Module:
    channels, _, _ = image_shape(name, input_shape, classes, least_side=8)
    first = nn.Conv2d(channels, stages[0][0], 3, padding=1, bias=False)
    return ResNet(BasicBlock, first, nn.Identity(), stages, classes)


@ARCHITECTURES.register("cifar_resnet18")
def cifar_resnet18(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The wide network of 18 layers, for images with sides of at least 8."""
    return _resnet("cifar_resnet18", _WIDE, input_shape, classes)


@ARCHITECTURES.register("cifar_resnet18_7x7")
def cifar_resnet18_7x7(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The wide network of 18 layers behind a 7×7 convolution of stride 2 and max-pooling, for sides of at least 8.

    No batch norm follows the convolution: Alfarra et al. (2022), as released.
    """
    channels, _, _ = image_shape("cifar_resnet18_7x7", input_shape, classes, least_side=8)
    first = nn.Conv2d(channels, _WIDE[0][0], 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return ResNet(BasicBlock, first, pool, _WIDE, classes, first_norm=False)


@ARCHITECTURES.register("cifar_resnet20")
def cifar_resnet20(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of 20 layers, for images with sides of at least 8."""
    return _resnet("cifar_resnet20", [(16, 3), (32, 3), (64, 3)], input_shape, classes)


@ARCHITECTURES.register("cifar_resnet110")
def cifar_resnet110(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of 110 layers, for images with sides of at least 8."""
    return _resnet("cifar_resnet110", [(16, 18), (32, 18), (64, 18)], input_shape, classes)


class PreActivationBlock(nn.Module):
    """Batch norm and ReLU ahead of each of two 3×3 convolutions, added to their input (He et al., 2016b)."""

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inward)
        self.conv1 = nn.Conv2d(inward, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bridge = None if inward == width else nn.Conv2d(inward, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The next feature map; where the width changes, what goes past is normalised as well."""
        ready = F.relu(self.bn1(x))
        change: Tensor = self.conv2(F.relu(self.bn2(self.conv1(ready))))
        return change + (x if self.bridge is None else self.bridge(ready))


class WideResNet(nn.Module):
    """Zagoruyko & Komodakis, 2016: three stages of pre-activation blocks, the mean over the image, one linear layer."""

    def __init__(self, channels: int, widths: Sequence[int], blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        stages = [
            nn.Sequential(
                PreActivationBlock(inward, width, stride),
                *(PreActivationBlock(width, width, 1) for _ in range(blocks - 1)),
            )
            for inward, width, stride in zip(widths, widths[1:], (1, 2, 2))
        ]
        self.stages = nn.Sequential(*stages)
        self.bn1 = nn.BatchNorm2d(widths[-1])
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = F.relu(self.bn1(self.stages(self.conv1(x))))
        logits: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits


@ARCHITECTURES.register("wide_resnet40_2")
def wide_resnet40_2(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """40 layers of twice the width, for sides of at least 8: Yang et al. (2020), who train it under uniform noise."""
    channels, _, _ = image_shape("wide_resnet40_2", input_shape, classes, least_side=8)
    return WideResNet(channels, (16, 32, 64, 128), 6, classes)


@ARCHITECTURES.register("resnet50")
def resnet50(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-50 (224×224 as a rule), for images with sides of at least 16."""
    channels, _, _ = image_shape("resnet50", input_shape, classes, least_side=16)
    first = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return ResNet(Bottleneck, first, pool, [(64, 3), (128, 4), (256, 6), (512, 3)], classes)
