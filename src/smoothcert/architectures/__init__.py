"""Networks by name; importing a family's file registers its members."""

from smoothcert.architectures import cifar_resnet, imagenet_resnet, lenet, small_cnn
from smoothcert.architectures.base import ARCHITECTURES, Builder
from smoothcert.architectures.lookup import builder, check_architecture
from smoothcert.architectures.normalize import Normalize
from smoothcert.architectures.spec import ModelSpec, build, initialise, seeded_fork
from smoothcert.architectures.statistics import normalisation_for

__all__ = [
    "ARCHITECTURES",
    "Builder",
    "ModelSpec",
    "Normalize",
    "build",
    "builder",
    "check_architecture",
    "cifar_resnet",
    "imagenet_resnet",
    "initialise",
    "lenet",
    "normalisation_for",
    "seeded_fork",
    "small_cnn",
]
