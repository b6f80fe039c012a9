"""Networks by name; importing a family's file registers its members."""

from smoothcert.architectures import cifar_resnet, lenet, small_cnn
from smoothcert.architectures.base import ARCHITECTURES, Builder
from smoothcert.architectures.normalize import Normalize
from smoothcert.architectures.spec import ModelSpec, build, initialise, seeded_fork

__all__ = [
    "ARCHITECTURES",
    "Builder",
    "ModelSpec",
    "Normalize",
    "build",
    "cifar_resnet",
    "initialise",
    "lenet",
    "seeded_fork",
    "small_cnn",
]
