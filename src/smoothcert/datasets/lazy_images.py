"""Images that stay on disk and are decoded when a batch of them is taken."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.image_files import (
    channels_first,
    check_eight_bits,
    converted,
    load_formats,
    opened,
    read_header,
)
from smoothcert.datasets.read_ahead import decoding_threads
from smoothcert.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


class Recipe(Protocol):
    """How an RGB image of any size becomes one of ``side`` x ``side``; ``repr`` tells recipes apart."""

    @property
    def side(self) -> int:
        """Height and width of what comes out."""
        ...

    def __call__(self, image: Image) -> Image:
        """The image made to size."""
        ...


@dataclass(frozen=True)
class CentreCrop:
    """Resize so that the shorter side is ``shorter``, then keep the square of ``side`` in the middle.

    Bilinear with antialiasing. The longer side is rounded down and half a pixel of offset goes to the even
    neighbour, which is what published ImageNet networks are evaluated with.
    """

    shorter: int
    side: int

    def __call__(self, image: Image) -> Image:
        """The image made to size."""
        width, height = (self.shorter * length // min(image.size) for length in image.size)
        left, top = round((width - self.side) / 2), round((height - self.side) / 2)
        return _resized(image, width, height).crop((left, top, left + self.side, top + self.side))


@dataclass(frozen=True)
class Squeeze:
    """Resize to a square of ``side`` whatever the proportions: all is kept, shapes are distorted."""

    side: int

    def __call__(self, image: Image) -> Image:
        """The image made to size."""
        return _resized(image, self.side, self.side)


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


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Stands for the uint8 array (number of images, 3, side, side) of image files made to size.

    Indexing it as one would the array decodes the images it asks for, several at a time, and keeps none.
    ``names`` are paths relative to ``root``.
    """

    root: Path
    names: NDArray[np.object_]
    recipe: Recipe

    @classmethod
    def of(cls, root: Path, names: Sequence[str], recipe: Recipe) -> LazyImages:
        """The images ``names`` under ``root``; no file is opened."""
        return cls(root, np.array(names, dtype=np.object_), recipe)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array this stands for."""
        return (len(self), 3, self.recipe.side, self.recipe.side)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Type of the array this stands for."""
        return np.dtype(np.uint8)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the array this stands for."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values of the array this stands for."""
        return math.prod(self.shape)

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
        batch = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        load_formats()
        threads = min(len(chosen), decoding_threads())
        if threads <= 1:
            for position, (name, recipe) in enumerate(zip(chosen, recipes)):
                batch[position] = self._decoded(name, recipe)
            return batch
        # A pool for each batch: starting threads is cheap compared with decoding, and none survives into a fork.
        with ThreadPoolExecutor(threads) as pool:
            for position, image in enumerate(pool.map(self._decoded, chosen, recipes)):
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
                raise DataError(
                    f"{file}: can't be read ({error.strerror or error}); check that it is still there"
                ) from error
            yield b"\0" + os.fsencode(name) + b"\0" + content

    def _decoded(self, name: str, recipe: Callable[[Image], Image] | None = None) -> NDArray[np.uint8]:
        file = self.root / name
        check_eight_bits(file, read_header(file).mode)
        with opened(file) as image:
            return channels_first((recipe or self.recipe)(converted(image, "RGB")))
