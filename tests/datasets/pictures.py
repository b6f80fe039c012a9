"""Writers of small image files, and resizing written down a second time to check the library's by."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """HWC with smooth colours and some grain: a wrong offset, side or channel changes most pixels."""
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)], axis=-1)
    grain = np.random.default_rng(seed).normal(0, 25, smooth.shape)
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def write_picture(path: Path, pixels: np.ndarray, **options: Any) -> np.ndarray:
    """Save in the format of the suffix and return what a decoder gives back, which for JPEG differs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def resize_weights(old: int, new: int) -> np.ndarray:
    """(new, old) weights of bilinear interpolation whose triangle widens when shrinking (antialiasing)."""
    step = old / new
    reach = max(step, 1.0)
    centres = (np.arange(new)[:, None] + 0.5) * step
    weights = np.maximum(0, 1 - np.abs(np.arange(old)[None] + 0.5 - centres) / reach)
    return weights / weights.sum(axis=1, keepdims=True)


def resized(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """HWC in real numbers."""
    rows, columns = resize_weights(pixels.shape[0], height), resize_weights(pixels.shape[1], width)
    return np.einsum("yh,hwc,xw->yxc", rows, pixels.astype(np.float64), columns, optimize=True)


def assert_nearly(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for rounding to 8 bits, which may happen after each of the two directions."""
    assert actual.shape == expected.shape
    assert np.abs(actual.astype(np.float64) - expected).max() <= 1.01
