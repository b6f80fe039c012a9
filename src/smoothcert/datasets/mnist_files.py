"""The four-file layout that MNIST and Fashion-MNIST share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.idx import MOST_VALUES, read_idx
from smoothcert.datasets.places import missing_files
from smoothcert.errors import DataError

_PREFIX = {"train": "train", "test": "t10k"}
_SIDE = 28

# Both data sets use the same file names, so only their contents tell a mix-up from the real thing.
_FIRST_LABELS = {
    ("mnist", "train"): (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    ("mnist", "test"): (7, 2, 1, 0, 4, 1, 4, 9, 5, 9),
    ("fashion-mnist", "train"): (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    ("fashion-mnist", "test"): (9, 2, 1, 1, 6, 1, 4, 6, 5, 7),
}


def load_mnist_files(name: str, classes: tuple[str, ...], split: str, places: Sequence[Path]) -> Dataset:
    """One split of data set ``name`` from the first of ``places`` that holds both of its files."""
    image_name = f"{_PREFIX[split]}-images-idx3-ubyte"
    label_name = f"{_PREFIX[split]}-labels-idx1-ubyte"
    for place in places:
        image_path, label_path = _plain_or_gzipped(place / image_name), _plain_or_gzipped(place / label_name)
        if image_path and label_path:
            return _read_pair(name, classes, split, image_path, label_path)
    raise missing_files(name, f"{image_name} and {label_name} (each plain or .gz) side by side", places)


def _plain_or_gzipped(path: Path) -> Path | None:
    gzipped = path.with_name(f"{path.name}.gz")
    return next((candidate for candidate in (path, gzipped) if candidate.is_file()), None)


def _read_pair(
    name: str, classes: tuple[str, ...], split: str, image_path: Path, label_path: Path
) -> Dataset:
    labels = read_idx(label_path, dimensions=1, most=MOST_VALUES // _SIDE**2)
    for (other, other_split), first in _FIRST_LABELS.items():
        if (other, other_split) != (name, split) and tuple(labels[: len(first)].tolist()) == first:
            raise DataError(
                f"{label_path}: expected the {split} labels of {name}, "
                f"found the {other_split} labels of {other}; name the folder of {name} with --data-dir"
            )
    images = read_idx(image_path, dimensions=3)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise DataError(
            f"{image_path}: expected images of {_SIDE}x{_SIDE}, found {images.shape[1]}x{images.shape[2]}"
        )
    if len(images) != len(labels):
        raise DataError(f"{label_path}: expected {len(images)} labels, one per image, found {len(labels)}")
    return Dataset(name, images[:, np.newaxis], labels.astype(np.int64), classes, scale=1 / 255)
