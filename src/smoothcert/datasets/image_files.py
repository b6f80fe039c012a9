"""Opening image files: what every data set that is kept as images shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import opened_file

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM", "TIFF")
"""What a file must be by its content. Pillow knows others; some of them start programs (EPS: Ghostscript)."""
MOST_PIXELS = 2**26

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
GREY_MODES = frozenset({"1", "L", "LA"})
COLOUR_MODES = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})


class Header(NamedTuple):
    """Width and height, and Pillow's name for the kind of pixels."""

    size: tuple[int, int]
    mode: str


def load_formats() -> None:
    """Load Pillow's decoders before threads do: while one loads them, another may find its format unknown."""
    from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module

    pillow.init()


def class_folders(folder: Path) -> list[Path]:
    """The subfolders of ``folder`` in order of their names, without hidden ones."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def image_names(folder: Path) -> list[str]:
    """The names of the images in ``folder``, sorted; hidden files and other suffixes are passed over."""
    # scandir, as it knows files from folders without asking the disk once for each of a million images.
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if Path(entry.name).suffix.lower() in SUFFIXES
            and not entry.name.startswith(".")
            and entry.is_file()
        )


@contextmanager
def opened(file: Path) -> Iterator[Image]:
    """The image in ``file``; whatever goes wrong while it is open is a ``DataError`` that names the file."""
    from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module

    try:
        with opened_file(file) as stream, pillow.open(stream, formats=FORMATS) as image:
            _check_size(file, image.size)
            yield image
    except DataError:
        raise
    except Exception as error:  # decoders raise nearly any exception on a damaged file
        raise DataError(
            f"{file}: expected an image, found a file that can't be read as one ({error}); fetch it again"
        ) from error


def _check_size(file: Path, size: tuple[int, int]) -> None:
    """Refuse absurd sizes, which a header can claim freely."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise DataError(
            f"{file}: claims {width}x{height} pixels, where {MOST_PIXELS} are the most; make it smaller before use"
        )


def read_header(file: Path) -> Header:
    """The header of a file that is whole: wrong checksums and a missing end, where seen, are refused."""
    with opened(file) as image:
        header = Header(image.size, image.mode)
        image.verify()  # decoding alone passes over them; afterwards this object can't be decoded
        return header


def check_eight_bits(file: Path, mode: str) -> None:
    """Refuse a Pillow mode whose values don't fit 8 bits: converting it would clip them."""
    if mode not in GREY_MODES | COLOUR_MODES:
        raise DataError(
            f"{file}: expected 8-bit values, found Pillow mode {mode}; "
            "convert it to 8 bits, or keep the full values in an .npz file"
        )


def converted(image: Image, mode: str) -> Image:
    """``image`` in ``mode`` (L or RGB); transparency is dropped."""
    # Pillow warns on a palette with transparent entries unless the transparency is first made a channel.
    source = image.convert("RGBA") if "transparency" in image.info and image.mode == "P" else image
    return source.convert(mode)


def channels_first(image: Image) -> NDArray[np.uint8]:
    """The pixels of an L or RGB image as CHW."""
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
