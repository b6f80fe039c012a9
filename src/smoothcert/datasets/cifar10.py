"""CIFAR-10: 32x32 colour images of ten classes, from the binary or the Python version of the batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.byte_pickle import PickledArray, load_byte_pickle
from smoothcert.datasets.places import candidate_places, missing_files
from smoothcert.datasets.published import CIFAR10
from smoothcert.errors import DataError
from smoothcert.files import read_file

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_MOST_RECORDS = 100_000  # ten times what a batch has
_BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}

_Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


@DATASETS.register("cifar10")
def load_cifar10(split: str, root: Path | None) -> Dataset:
    """CIFAR-10; inputs are 3x32x32 in [0, 1].

    Looks in ``cifar-10-batches-bin/``, ``cifar-10-batches-py/`` and the root itself. The train split is
    whichever of the five batches are there, in order: one batch of 10000 is enough to train on. Its length
    and fingerprint tell how many there were.
    """
    places = candidate_places(root, CIFAR10.folders)
    batches = _read_first(split, places)
    images = np.concatenate([images for images, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    return Dataset("cifar10", images, labels, CLASSES, scale=1 / 255)


def _read_first(split: str, places: list[Path]) -> list[_Batch]:
    versions: list[tuple[str, Callable[[Path], _Batch]]] = [(".bin", _read_binary), ("", _read_pickle)]
    for place in places:
        for suffix, read in versions:
            paths = [place / f"{batch}{suffix}" for batch in _BATCHES[split]]
            present = [path for path in paths if path.is_file()]
            if present:
                return [read(path) for path in present]
    wanted = " or ".join(_BATCHES[split])
    raise missing_files("cifar10", f"{wanted} (.bin, or the Python version without suffix)", places)


def _read_binary(path: Path) -> _Batch:
    content = np.frombuffer(read_file(path, _MOST_RECORDS * (1 + _PIXELS)), dtype=np.uint8)
    if len(content) == 0 or len(content) % (1 + _PIXELS):
        raise DataError(
            f"{path}: expected one or more records of {1 + _PIXELS} bytes (a label, then {_PIXELS} values), "
            f"found {len(content)} bytes"
        )
    records = content.reshape(-1, 1 + _PIXELS)
    return _checked_batch(path, records[:, 1:], records[:, 0].tolist())


def _read_pickle(path: Path) -> _Batch:
    content = load_byte_pickle(path)
    fields = content if isinstance(content, dict) else {}
    pixels, labels = (fields.get(key.encode(), fields.get(key)) for key in ("data", "labels"))
    if not isinstance(pixels, PickledArray) or pixels.values.shape[1:] != (_PIXELS,):
        found = pixels.values.shape if isinstance(pixels, PickledArray) else type(pixels).__name__
        raise DataError(f"{path}: expected 'data' to be a uint8 array of shape (n, {_PIXELS}), found {found}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: expected 'labels' to be a list of integers, found {type(labels).__name__}")
    if len(labels) != len(pixels.values):
        raise DataError(f"{path}: expected {len(pixels.values)} labels, one per image, found {len(labels)}")
    return _checked_batch(path, pixels.values, labels)


def _checked_batch(path: Path, pixels: NDArray[np.uint8], labels: list[int]) -> _Batch:
    for record, label in enumerate(labels):
        if not 0 <= label < len(CLASSES):
            raise DataError(
                f"{path}: expected labels in 0..{len(CLASSES) - 1}, found {label} in record {record}"
            )
    return pixels.reshape(-1, *_SHAPE), np.array(labels, dtype=np.int64)
