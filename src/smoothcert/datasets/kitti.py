"""KITTI's object detection images as a classification task: each image bears its dominant class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.lazy_images import LazyImages, Squeeze
from smoothcert.datasets.places import candidate_places, missing_files
from smoothcert.errors import DataError
from smoothcert.extras import require
from smoothcert.files import MOST_TEXT, read_file

CLASSES = ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc")
RECIPE = Squeeze(side=224)

_IMAGES, _LABELS = "training/image_2", "training/label_2"
_IGNORED = "DontCare"
_COLUMNS = 15
_SPLIT_SEED = 0
_FILE_NAME = re.compile(r"(\d{6})\.png")


@DATASETS.register("kitti")
def load_kitti(split: str, root: Path | None) -> Dataset:
    """KITTI by dominant class, as in the paper on non-uniform noise; inputs are 3x224x224 in [0, 1].

    Looks for ``training/image_2/`` and ``training/label_2/`` in ``kitti/``, ``KITTI/``, ``Kitti/raw/`` and the
    root itself. The label of an image is the type that most of its objects have; of types that occur equally
    often, the one earlier in ``CLASSES``. Images without an object (DontCare is none) are left out. The paper
    says only that images are resized to 224x224: the whole image is, bilinear with antialiasing, which
    distorts it. KITTI's own test images have no labels, so a fixed tenth of the training ones is the test
    split; it depends on nothing but which images are there and have an object.
    """
    require("PIL.Image", "the kitti data set")
    places = candidate_places(root, ("kitti", "KITTI", "Kitti/raw"))
    place = next((place for place in places if (place / _IMAGES).is_dir()), None)
    if place is None:
        raise missing_files("kitti", f"{_IMAGES}/ beside {_LABELS}/", places)
    matches = filter(None, (_FILE_NAME.fullmatch(entry.name) for entry in (place / _IMAGES).iterdir()))
    labels = {name: _dominant_class(place, name) for name in sorted(match[1] for match in matches)}
    usable = [name for name, label in labels.items() if label is not None]
    if len(usable) < 2:
        raise DataError(
            f"{place / _IMAGES}: expected two or more images with an object, to split into train and test, "
            f"found {len(usable)}; unpack both the images and the labels of the object detection task"
        )
    chosen = [usable[position] for position in _split_positions(len(usable), split)]
    return Dataset(
        name="kitti",
        stored=LazyImages.of(place, [f"{_IMAGES}/{name}.png" for name in chosen], RECIPE),
        labels=np.array([labels[name] for name in chosen], np.int64),
        classes=CLASSES,
        scale=1 / 255,
    )


def _split_positions(count: int, split: str) -> list[int]:
    # RandomState, unlike Generator, is promised to give the same numbers in every version of numpy.
    order: NDArray[np.int64] = np.random.RandomState(_SPLIT_SEED).permutation(count)
    train = count * 9 // 10
    return sorted((order[:train] if split == "train" else order[train:]).tolist())


def _dominant_class(place: Path, name: str) -> int | None:
    file = place / _LABELS / f"{name}.txt"
    try:
        lines = read_file(file, MOST_TEXT).decode().splitlines()
    except FileNotFoundError as error:
        raise DataError(
            f"{file}: expected the labels of image {name}.png, found no such file; "
            f"unpack the labels into {_LABELS}/"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected lines of text, found {error}; fetch it again") from error
    types = [_type_of(file, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    counts = Counter(CLASSES.index(kind) for kind in types if kind != _IGNORED)
    return min(counts, key=lambda label: (-counts[label], label), default=None)


def _type_of(file: Path, number: int, line: str) -> str:
    kind, *values = line.split()
    if 1 + len(values) != _COLUMNS or not _all_numbers(values):
        raise DataError(
            f"{file}, line {number}: expected {_COLUMNS} columns, a type and {_COLUMNS - 1} numbers, "
            f"found {line!r}; fetch the labels again"
        )
    if kind not in (*CLASSES, _IGNORED):
        raise DataError(
            f"{file}, line {number}: expected a type among {', '.join((*CLASSES, _IGNORED))}, found {kind!r}; "
            "mend the line or fetch the labels again"
        )
    return kind


def _all_numbers(values: Sequence[str]) -> bool:
    try:
        np.array(values, dtype=np.float64)
    except ValueError:
        return False
    return True
