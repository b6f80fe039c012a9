"""MNIST: handwritten digits as 28x28 grey images."""

from __future__ import annotations

from pathlib import Path

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.mnist_files import load_mnist_files
from smoothcert.datasets.places import candidate_places
from smoothcert.datasets.published import MNIST

CLASSES = tuple("0123456789")


@DATASETS.register("mnist")
def load_mnist(split: str, root: Path | None) -> Dataset:
    """MNIST from ``mnist/``, ``MNIST/raw/`` or the root itself; inputs are 1x28x28 in [0, 1]."""
    return load_mnist_files("mnist", CLASSES, split, candidate_places(root, MNIST.folders))
