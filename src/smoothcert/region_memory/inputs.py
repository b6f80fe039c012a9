"""Inputs that a memory accepts: points whose float64 geometry is exact enough to be rounded safely."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.region_memory.statement import MemoryStatement

LARGEST = 1e100
"""Beyond it squares might overflow."""
SMALLEST_RADIUS = 1e-100
"""Below it squares might underflow, and a computed distance no longer be a bound."""

_EXACT_INTEGERS = 2**53


def as_point(x: NDArray[Any], statement: MemoryStatement) -> NDArray[np.float64]:
    """The same numbers in float64; refuses what has another shape, isn't finite or wouldn't stay the same."""
    if x.shape != statement.input_shape:
        raise InvalidValueError(
            f"this memory is about one input of shape {statement.input_shape}, got shape {x.shape}"
        )
    if x.dtype.kind not in "buif" or x.dtype.itemsize > 8:
        raise InvalidValueError(f"an input must be of integers or of floats up to 64 bits, got {x.dtype}")
    if x.dtype.kind in "ui" and x.size and max(int(x.max()), -int(x.min())) > _EXACT_INTEGERS:
        raise InvalidValueError(f"integers beyond 2^53 = {_EXACT_INTEGERS} can't be told apart in float64")
    point = x.astype(np.float64)
    if not np.isfinite(point).all():
        raise InvalidValueError("an input must be finite: it has a NaN or an infinity; mend it and ask again")
    largest = float(np.abs(point).max())
    if largest > LARGEST:
        raise InvalidValueError(
            f"coordinates may be up to {LARGEST:g} in size, got {largest:g}; rescale them"
        )
    return point
