"""Fashion-MNIST: articles of clothing as 28x28 grey images."""

from __future__ import annotations

from pathlib import Path

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.mnist_files import load_mnist_files
from smoothcert.datasets.places import candidate_places
from smoothcert.datasets.published import DEBIAN_PLACE, FASHION_MNIST

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@DATASETS.register("fashion-mnist")
def load_fashion_mnist(split: str, root: Path | None) -> Dataset:
    """Fashion-MNIST; inputs are 1x28x28 in [0, 1].

    Looks in ``fashion-mnist/``, ``FashionMNIST/raw/`` and the root itself, and without an explicit root in
    the folder of Debian's package dataset-fashion-mnist too.
    """
    places = candidate_places(root, FASHION_MNIST.folders, system_places=(DEBIAN_PLACE,))
    return load_mnist_files("fashion-mnist", CLASSES, split, places)
