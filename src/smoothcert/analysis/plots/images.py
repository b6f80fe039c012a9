"""Inputs as images, the way matplotlib takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError


def as_images(pictures: NDArray[Any]) -> NDArray[np.float64]:
    """N×H×W, or N×H×W×3 for colours, as matplotlib takes them."""
    images = np.asarray(pictures, dtype=np.float64)
    if images.ndim == 4 and images.shape[1] == 1:
        images = images[:, 0]
    elif images.ndim == 4 and images.shape[1] == 3:
        images = np.moveaxis(images, 1, -1)
    elif images.ndim != 3:
        raise InvalidValueError(
            f"pictures must be N×H×W, N×1×H×W or N×3×H×W, got the shape {np.shape(pictures)}"
        )
    if not np.all((images >= 0) & (images <= 1)):
        raise InvalidValueError(
            f"pictures must have values from 0 to 1, got {np.min(images)} to {np.max(images)}; rescale them"
        )
    return images
