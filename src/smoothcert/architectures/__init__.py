"""Networks by name, a file for each family."""

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
    "initialise",
    "normalisation_for",
    "seeded_fork",
]
