"""The residual network of 50 layers for ImageNet: 25,557,032 parameters for 1000 classes."""

from __future__ import annotations

from torch import nn

from smoothcert.architectures.base import ARCHITECTURES, image_shape
from smoothcert.architectures.residual import Bottleneck, ResNet


@ARCHITECTURES.register("resnet50")
def resnet50(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-50 (224×224 as a rule), for images with sides of at least 16."""
    channels, _, _ = image_shape("resnet50", input_shape, classes, least_side=16)
    first = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return ResNet(Bottleneck, first, pool, [(64, 3), (128, 4), (256, 6), (512, 3)], classes)
