"""``folder:PATH``: images in one subfolder per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})

_SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val")}
_GREY_MODES = frozenset({"1", "L", "LA"})
_COLOUR_MODES = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})


class _Header(NamedTuple):
    size: tuple[int, int]
    mode: str


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
    classes = tuple(sorted({entry.name for sibling in siblings for entry in _subfolders(sibling)}))
    if not classes:
        raise DataError(f"folder:{path}: expected one subfolder per class in {folder}, found none")
    files: list[Path] = []
    labels: list[int] = []
    for class_folder in _subfolders(folder):
        images = _image_files(class_folder)
        files += images
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


def _subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _image_files(class_folder: Path) -> list[Path]:
    files = sorted(
        entry
        for entry in class_folder.iterdir()
        if entry.suffix.lower() in SUFFIXES and not entry.name.startswith(".") and entry.is_file()
    )
    if not files:
        raise DataError(
            f"{class_folder}: expected images ({', '.join(sorted(SUFFIXES))}) of one class, found none; "
            "the layout is PATH/CLASS/image, or PATH/train/CLASS/image with PATH/test/CLASS/image"
        )
    return files


def _read_images(files: Sequence[Path]) -> NDArray[np.uint8]:
    if not files:
        return np.empty((0, 1, 1, 1), np.uint8)
    headers = [_read_header(file) for file in files]
    expected = headers[0].size
    for file, header in zip(files, headers):
        if header.size != expected:
            raise DataError(
                f"{file}: expected {_as_text(expected)} like {files[0]}, found {_as_text(header.size)}; "
                "all images must have one size, so resize or crop them first"
            )
        if header.mode not in _GREY_MODES | _COLOUR_MODES:
            raise DataError(
                f"{file}: expected 8-bit values, found Pillow mode {header.mode}; "
                "convert it to 8 bits, or keep the full values in an .npz file"
            )
    mode = "L" if all(header.mode in _GREY_MODES for header in headers) else "RGB"
    width, height = expected
    images = np.empty((len(files), len(mode), height, width), np.uint8)
    for index, file in enumerate(files):
        images[index] = _read_pixels(file, mode)
    return images


def _read_header(file: Path) -> _Header:
    with _opened(file) as image:
        header = _Header(image.size, image.mode)
        image.verify()  # decoding alone passes over wrong checksums and a missing end
        return header


def _read_pixels(file: Path, mode: str) -> NDArray[np.uint8]:
    with _opened(file) as image:
        # Pillow warns on a palette with transparent entries unless the transparency is first made a channel.
        source = image.convert("RGBA") if "transparency" in image.info and image.mode == "P" else image
        pixels = np.asarray(source.convert(mode), dtype=np.uint8)
    return pixels[np.newaxis] if mode == "L" else pixels.transpose(2, 0, 1)


@contextmanager
def _opened(file: Path) -> Iterator[Image]:
    try:
        from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module
    except ImportError as error:
        raise MissingExtraError("Pillow", "images", "a folder of images") from error
    try:
        with pillow.open(file) as image:
            yield image
    except Exception as error:  # decoders raise nearly any exception on a damaged file
        raise DataError(
            f"{file}: expected an image, found a file that can't be read as one ({error})"
        ) from error


def _as_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
