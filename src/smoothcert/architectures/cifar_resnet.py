"""Residual networks for CIFAR-10 and other small images: a 3×3 convolution first, and no pooling after it.

Those of 20 and 110 layers are He et al. (2016), section 4.2, the latter also that of Cohen et al. (2019).
The one of 18 layers has the widths of the ImageNet ResNet-18. Data-dependent smoothing (Alfarra et al., 2022) calls its
network ResNet-18; the released one keeps ImageNet's first layers, and is here by its own name.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from smoothcert.architectures.base import ARCHITECTURES, image_shape
from smoothcert.architectures.residual import BasicBlock, ResNet

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
