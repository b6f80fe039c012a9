"""The σ of each input, in words, for runs and logs that have one for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def own_sigmas(sigmas: NDArray[np.float64] | Sequence[float]) -> str | None:
    """``0.05 to 0.31, median 0.12``; None where all inputs have the same σ."""
    if len(set(map(float, sigmas))) <= 1:
        return None
    return f"{np.min(sigmas):.4g} to {np.max(sigmas):.4g}, median {np.median(sigmas):.4g}"
