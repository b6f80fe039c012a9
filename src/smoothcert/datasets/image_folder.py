"""``folder:PATH``: images in one subfolder per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import PATH_FORMS, Dataset
from smoothcert.datasets.image_files import (
    GREY_MODES,
    SUFFIXES,
    channels_first,
    check_eight_bits,
    class_folders,
    converted,
    image_names,
    opened,
    read_header,
)
from smoothcert.errors import DataError
from smoothcert.extras import require
from smoothcert.files import check_expansion

_SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val")}


@PATH_FORMS.register("folder")
def load_image_folder(path: Path, split: str) -> Dataset:
    """Images from ``path/CLASS/``, classes in order of their names; inputs are CHW in [0, 1].

    With ``path/train/`` and ``path/test/`` (or ``val/``) those hold the class folders of the splits, and the
    classes are those of either, so that a label means the same in both; otherwise ``path`` itself serves as
    the split asked for. Files whose suffix isn't that of an image are passed over. All images must have
    one size. If every one is grey there is one channel, else all become RGB; transparency is dropped.
    """
    if not path.is_dir():
        raise DataError(
            f"folder:{path}: expected a folder with one subfolder per class, found no such folder"
        )
    folder, siblings = _split_folder(path, split)
    classes = tuple(sorted({entry.name for sibling in siblings for entry in class_folders(sibling)}))
    if not classes:
        raise DataError(f"folder:{path}: expected one subfolder per class in {folder}, found none")
    files: list[Path] = []
    labels: list[int] = []
    for class_folder in class_folders(folder):
        images = image_names(class_folder)
        if not images:
            raise DataError(
                f"{class_folder}: expected images ({', '.join(sorted(SUFFIXES))}) of one class, found none; "
                "the layout is PATH/CLASS/image, or PATH/train/CLASS/image with PATH/test/CLASS/image"
            )
        files += [class_folder / name for name in images]
        labels += [classes.index(class_folder.name)] * len(images)
    return Dataset(f"folder:{path}", _read_images(files), np.array(labels, np.int64), classes, scale=1 / 255)


def _split_folder(path: Path, split: str) -> tuple[Path, list[Path]]:
    found = {
        name: next((path / folder for folder in folders if (path / folder).is_dir()), None)
        for name, folders in _SPLIT_FOLDERS.items()
    }
    train, test = found["train"], found["test"]
    if train is None or test is None:
        return path, [path]
    return train if split == "train" else test, [train, test]


def _read_images(files: Sequence[Path]) -> NDArray[np.uint8]:
    if not files:
        return np.empty((0, 1, 1, 1), np.uint8)
    require("PIL.Image", "a folder of images")
    headers = [read_header(file) for file in files]
    expected = headers[0].size
    for file, header in zip(files, headers):
        if header.size != expected:
            raise DataError(
                f"{file}: expected {_as_text(expected)} like {files[0]}, found {_as_text(header.size)}; "
                "all images must have one size, so resize or crop them first"
            )
        check_eight_bits(file, header.mode)
    mode = "L" if all(header.mode in GREY_MODES for header in headers) else "RGB"
    width, height = expected
    claimed, stored = len(files) * len(mode) * height * width, sum(file.stat().st_size for file in files)
    check_expansion(f"{files[0].parent} and its like", claimed, stored)
    images = np.empty((len(files), len(mode), height, width), np.uint8)
    for index, file in enumerate(files):
        with opened(file) as image:
            images[index] = channels_first(converted(image, mode))
    return images


def _as_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
