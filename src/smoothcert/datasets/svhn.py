"""SVHN: house numbers photographed in the street, as cropped 32x32 colour digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.mat5 import read_mat5
from smoothcert.datasets.places import candidate_places, missing_files
from smoothcert.datasets.published import SVHN
from smoothcert.errors import DataError

CLASSES = tuple("0123456789")

_IMAGE = (32, 32, 3)


@DATASETS.register("svhn")
def load_svhn(split: str, root: Path | None) -> Dataset:
    """SVHN's cropped digits; inputs are 3x32x32 in [0, 1].

    Looks for ``train_32x32.mat`` and ``test_32x32.mat`` in ``svhn/``, ``SVHN/`` and the root itself. The
    extra images are no part of the train split.
    """
    file_name = f"{split}_32x32.mat"
    places = candidate_places(root, SVHN.folders)
    path = next((place / file_name for place in places if (place / file_name).is_file()), None)
    if path is None:
        raise missing_files("svhn", file_name, places)
    variables = read_mat5(path)
    if not {"X", "y"} <= variables.keys():
        raise DataError(
            f"{path}: expected the variables X and y, found {', '.join(variables) or 'none'}; "
            "use the file of cropped digits (format 2), not that of full numbers"
        )
    images = _checked_images(path, variables["X"])
    labels = _checked_labels(path, variables["y"], len(images))
    return Dataset("svhn", images, labels, CLASSES, scale=1 / 255)


def _checked_images(path: Path, images: NDArray[Any] | None) -> NDArray[np.uint8]:
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != _IMAGE:
        raise DataError(
            f"{path}: expected X to be uint8 of shape (32, 32, 3, number of images), "
            f"found {_as_text(images)}; fetch the published file again"
        )
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1))


def _checked_labels(path: Path, labels: NDArray[Any] | None, images: int) -> NDArray[np.int64]:
    if labels is None or labels.shape != (images, 1):
        raise DataError(
            f"{path}: expected y to be numbers of shape ({images}, 1), one per image, "
            f"found {_as_text(labels)}; fetch the published file again"
        )
    digits = labels[:, 0]
    bad = np.flatnonzero(~np.isin(digits, np.arange(1, 11)))
    if len(bad):
        raise DataError(
            f"{path}: expected labels in 1..10 (10 stands for the digit 0), "
            f"found {digits[bad[0]]} for image {bad[0]}; fetch the published file again"
        )
    return digits.astype(np.int64) % 10


def _as_text(array: NDArray[Any] | None) -> str:
    return "something else than real numbers" if array is None else f"{array.dtype} of shape {array.shape}"
