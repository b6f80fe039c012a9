"""Images in files: opened within limits, and decoded when a batch of them is taken, or a little ahead of it."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import opened_file

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM", "TIFF")
"""What a file must be by its content. Pillow knows others; some of them start programs (EPS: Ghostscript)."""
MOST_PIXELS, MOST_SIDE = 2**26, 2**16

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_LARGE, _ONE_LARGE = 2**23, threading.Lock()  # pixels; several such images at once would take gigabytes
GREY_MODES = frozenset({"1", "L", "LA"})
COLOUR_MODES = frozenset({"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})


class ImageHeader(NamedTuple):
    """Width and height, and Pillow's name for the kind of pixels."""

    size: tuple[int, int]
    mode: str


def class_folders(folder: Path) -> list[Path]:
    """The subfolders of ``folder`` in order of their names, without hidden ones."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def image_names(folder: Path) -> list[str]:
    """The names of the images in ``folder``, sorted; hidden files and other suffixes are passed over."""
    # scandir, as it knows files from folders without asking the disk once for each of a million images.
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".") and entry.is_file()]
        return sorted(entry.name for entry in shown if Path(entry.name).suffix.lower() in SUFFIXES)


@contextmanager
def opened(file: Path) -> Iterator[Image]:
    """The image in ``file``; whatever goes wrong while it is open is a ``DataError`` that names the file."""
    from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module

    try:
        with opened_file(file) as stream, pillow.open(stream, formats=FORMATS) as image:
            width, height = image.size  # a header can claim any
            if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
                raise DataError(
                    f"{file}: claims {width}x{height} pixels, where {MOST_PIXELS} and sides of {MOST_SIDE} are the "
                    "most; make it smaller before use"
                )
            yield image
    except DataError:
        raise
    except Exception as error:  # decoders raise nearly any exception on a damaged file
        raise DataError(f"{file}: expected an image, can't read one ({error}); fetch it again") from error


def read_header(file: Path) -> ImageHeader:
    """The header of a file that is whole: wrong checksums and a missing end, where seen, are refused."""
    with opened(file) as image:
        header = ImageHeader(image.size, image.mode)
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


K = TypeVar("K")
T = TypeVar("T")

# Decoding is bound by processors, not by waiting; more threads than this only add memory.
MOST_THREADS = 8


def decoding_threads() -> int:
    """Threads that decode images: one a core, within reason."""
    return min(os.cpu_count() or 1, MOST_THREADS)


def read_ahead(
    keys: Iterable[K], read: Callable[[K], T], *, ahead: int, threads: int
) -> Generator[tuple[K, T]]:
    """Each key with what ``read`` makes of it, in the order of the keys.

    While one is handed out, at most ``ahead`` others are read or being read. What goes wrong with a key is raised when
    its place comes, after all that came before it. When the consumer leaves, or an error does, nothing more is begun
    and every thread has ended.
    """
    waiting = iter(keys)
    pool = ThreadPoolExecutor(threads, "reading")
    pending: deque[tuple[K, Future[T]]] = deque()
    try:
        while True:
            while len(pending) <= ahead and (key := next(waiting, _END)) is not _END:
                pending.append((key, pool.submit(read, key)))  # type: ignore[arg-type]
            if not pending:
                return
            first, reading = pending.popleft()
            yield first, reading.result()
    finally:
        pool.shutdown(cancel_futures=True)


_END = object()
_LONGEST_RESIZED = 16  # times the shorter side


@dataclass(frozen=True)
class CentreCrop:
    """Resize so that the shorter side is ``shorter``, then keep the square of ``side`` in the middle.

    Bilinear with antialiasing. The longer side is rounded down and half a pixel of offset goes to the even
    neighbour, which is what published ImageNet networks are evaluated with. Of an image more than 16 times as long as
    it is wide the middle is cut out first: resized whole, a strip of one pixel would take gigabytes.
    """

    shorter: int
    side: int

    def __call__(self, image: Image) -> Image:
        """The image made to size."""
        shorter = min(image.size)
        if max(image.size) > _LONGEST_RESIZED * shorter:
            width, height = (min(length, _LONGEST_RESIZED * shorter) for length in image.size)
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        width, height = (self.shorter * length // shorter for length in image.size)
        left, top = round((width - self.side) / 2), round((height - self.side) / 2)
        return _resized(image, width, height).crop((left, top, left + self.side, top + self.side))


@dataclass(frozen=True)
class Squeeze:
    """Resize to a square of ``side`` whatever the proportions: all is kept, shapes are distorted."""

    side: int

    def __call__(self, image: Image) -> Image:
        """The image made to size."""
        return _resized(image, self.side, self.side)


Sizing = CentreCrop | Squeeze
"""How an RGB image of any size becomes one of ``side`` x ``side``; ``repr`` tells recipes apart."""

TRIES = 10
"""Draws of four numbers for one random part of an image."""

_AREAS, _ASPECTS = (0.08, 1.0), (3 / 4, 4 / 3)


def random_part(width: int, height: int, draws: NDArray[np.float64]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a random part, chosen by draws from [0, 1) of shape (TRIES, 4).

    Its share of the area is even on [0.08, 1], the logarithm of its aspect on that of [¾, 4/3], its place on where
    it fits. If no try fits, the middle with the nearest such aspect: as the papers' ImageNet networks are trained.
    """
    low, high = (math.log(aspect) for aspect in _ASPECTS)
    for area, aspect, left, top in draws:
        target = width * height * (_AREAS[0] + (_AREAS[1] - _AREAS[0]) * area)
        ratio = math.exp(low + (high - low) * aspect)
        wide, tall = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            x, y = int(left * (width - wide + 1)), int(top * (height - tall + 1))
            return x, y, x + wide, y + tall
    wide = min(width, max(1, round(height * _ASPECTS[1])))
    tall = min(height, max(1, round(width / _ASPECTS[0])))
    x, y = (width - wide) // 2, (height - tall) // 2
    return x, y, x + wide, y + tall


def _resized(image: Image, width: int, height: int) -> Image:
    from PIL.Image import Resampling

    return image.resize((width, height), Resampling.BILINEAR)


@dataclass(frozen=True, eq=False)
class _Part:
    side: int
    draws: NDArray[np.float64]

    def __call__(self, image: Image) -> Image:
        return _resized(image.crop(random_part(*image.size, self.draws)), self.side, self.side)


class LazySource(Protocol):
    """Stands for an array of inputs too large for memory: reads inputs when they are indexed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array this stands for."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the array this stands for."""
        ...

    @property
    def ndim(self) -> int:
        """Number of its dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of its values."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, indices: slice | NDArray[np.int64] | list[int]) -> NDArray[Any]: ...

    def first(self, most: int) -> LazySource:
        """The first ``most`` inputs, none of them read."""
        ...

    def bounds(self) -> tuple[float, float]:
        """Values that no input exceeds, known without reading any."""
        ...

    def fingerprint_parts(self) -> Iterator[bytes]:
        """Piece by piece, bytes that differ where the inputs do."""
        ...


@dataclass(frozen=True, eq=False)
class LazyImages(LazySource):
    """Stands for the uint8 array (number of images, 3, side, side) of image files made to size.

    Indexing it as one would the array decodes the images it asks for, several at a time, and keeps none.
    ``names`` are paths relative to ``root``.
    """

    root: Path
    names: NDArray[np.object_]
    recipe: Sizing

    @classmethod
    def of(cls, root: Path, names: Sequence[str], recipe: Sizing) -> LazyImages:
        """The images ``names`` under ``root``; no file is opened."""
        return cls(root, np.array(names, dtype=np.object_), recipe)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array this stands for."""
        return (len(self.names), 3, self.recipe.side, self.recipe.side)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Type of the array this stands for."""
        return np.dtype(np.uint8)

    def __getitem__(self, indices: int | slice | NDArray[Any] | list[int]) -> NDArray[np.uint8]:
        chosen: Any = self.names[indices]
        if isinstance(chosen, str):
            return self._decoded(chosen)
        return self._batch(chosen, [self.recipe] * len(chosen))

    def parts(
        self, indices: slice | NDArray[np.int64] | list[int], draws: NDArray[np.float64]
    ) -> NDArray[np.uint8]:
        """A random part of each image, cut from the file as it is and made to size; see :func:`random_part`."""
        return self._batch(self.names[indices], [_Part(self.recipe.side, each) for each in draws])

    def _batch(
        self, chosen: NDArray[np.object_], recipes: Sequence[Callable[[Image], Image]]
    ) -> NDArray[np.uint8]:
        from PIL import Image as pillow  # noqa: N813 - its class has the same name as its module

        batch = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        pillow.init()  # before threads do: while one loads the decoders, another may find its format unknown
        threads = min(len(chosen), decoding_threads())
        # A pool for each batch: starting threads is cheap compared with decoding, and none survives into a fork.
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            images = (map if pool is None else pool.map)(self._decoded, chosen, recipes)
            for position, image in enumerate(images):
                batch[position] = image
        return batch

    def first(self, most: int) -> LazyImages:
        """The first ``most`` images, still on disk."""
        return replace(self, names=self.names[:most])

    def bounds(self) -> tuple[float, float]:
        """Values that no image exceeds; which ones occur isn't known without decoding them all."""
        return 0.0, 255.0

    def fingerprint_parts(self) -> Iterator[bytes]:
        """What tells these images from others: the recipe, and the name and content of every file."""
        yield repr(self.recipe).encode()
        for name in self.names:
            file = self.root / name
            try:
                with file.open("rb") as stream:
                    content = hashlib.file_digest(stream, "sha256").digest()
            except OSError as error:
                raise DataError(f"{file}: can't be read ({error.strerror or error}); restore it") from error
            yield b"\0" + os.fsencode(name) + b"\0" + content

    def _decoded(self, name: str, recipe: Callable[[Image], Image] | None = None) -> NDArray[np.uint8]:
        file = self.root / name
        header = read_header(file)
        check_eight_bits(file, header.mode)
        with _ONE_LARGE if math.prod(header.size) > _LARGE else nullcontext(), opened(file) as image:
            return channels_first((recipe or self.recipe)(converted(image, "RGB")))
