"""Inputs as a page shows them: small pictures or strips of features, as they are and with the run's noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.noise import DIAGONAL_NOISES, NOISES, Noise
from smoothcert.report.png import png_uri

_LARGEST_SIDE = 96
_MOST_FEATURES = 64


@dataclass(frozen=True, eq=False)
class Gallery:
    """Shows inputs of one data set. Values are mapped from ``low``..``high`` to what a screen can show."""

    dataset: Dataset
    low: float
    high: float

    @classmethod
    def of(cls, dataset: Dataset) -> Gallery:
        """Values in [0, 1] are shown as they are, others from the smallest to the largest of the set."""
        low, high = dataset.value_range()
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(dataset, low, high if high > low else low + 1.0)

    @property
    def pictures(self) -> bool:
        """Whether inputs are pictures; all others are shown as features."""
        shape = self.dataset.input_shape
        return (len(shape) == 2 and min(shape) > 1) or (len(shape) == 3 and shape[0] in (1, 3))

    def note(self) -> str:
        """What was done to the inputs to show them."""
        if not self.pictures:
            size = int(np.prod(self.dataset.input_shape))
            cut = (
                f" The first {_MOST_FEATURES} of {size} features are shown." if size > _MOST_FEATURES else ""
            )
            return f"A bar runs from the smallest to the largest value of its feature on this page.{cut}"
        parts = [
            "Noisy pictures are one draw each, made for this page; values outside the range are cut off."
        ]
        if (self.low, self.high) != (0.0, 1.0):
            parts.append(f"Black is {self.low:g} and white {self.high:g}.")
        if max(self.dataset.input_shape[-2:]) > _LARGEST_SIDE:
            parts.append("Pictures are shown smaller than they are, which softens the noise.")
        return " ".join(parts)

    def shown(self, index: int) -> Any:
        """The input: a data URI, or a list of features."""
        return self._view(self.dataset.input(index))

    def shown_noisy(self, index: int, scale: float | NDArray[np.float64], noise: str) -> Any:
        """The input with noise from a stream that depends on the index alone: not one of the votes."""
        x = self.dataset.input(index)
        return self._view(x + scale * _drawn(x.shape, index, noise))

    def _view(self, x: NDArray[np.floating[Any]]) -> Any:
        if not self.pictures:
            return [float(f"{value:.4g}") for value in x.reshape(-1)[:_MOST_FEATURES].tolist()]
        picture = x if x.ndim == 2 else np.moveaxis(x, 0, -1)
        scaled = (_shrunk(picture.astype(np.float64)) - self.low) / (self.high - self.low)
        pixels = np.clip(scaled * 255 + 0.5, 0, 255).astype(np.uint8)
        return png_uri(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


def _drawn(shape: tuple[int, ...], index: int, noise: str) -> NDArray[np.float64]:
    """Noise of standard deviation 1."""
    kind: type[Noise] = DIAGONAL_NOISES[noise] if noise in DIAGONAL_NOISES else NOISES[noise]
    seed = hashlib.sha256(f"smoothcert report|{index}".encode()).digest()
    return kind.sample(np.random.default_rng(int.from_bytes(seed[:16], "little")), shape)


def _shrunk(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    """Averages of square blocks, so many that the longest side fits."""
    block = -(-max(picture.shape[:2]) // _LARGEST_SIDE)
    if block == 1:
        return picture
    height, width = (max(1, side // block) for side in picture.shape[:2])
    if min(picture.shape[:2]) < block:
        return picture[::block, ::block]
    cut = picture[: height * block, : width * block]
    return np.asarray(cut.reshape(height, block, width, block, *picture.shape[2:]).mean(axis=(1, 3)))
