"""Certified accuracy as a step function of the radius."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def step_counts(
    sizes: NDArray[np.float64], start: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """From ``start`` on, where the number of ``sizes`` (ascending) that are reached drops, and that number beyond."""
    jumps = np.unique(sizes)
    left = sizes.size - np.searchsorted(sizes, jumps, side="right")
    return np.concatenate([[start], jumps]), np.concatenate([[sizes.size], left]).astype(np.int64)
