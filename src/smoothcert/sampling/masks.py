"""Masked values, which NumPy unmasks in silence where it makes an array of several, or of another class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def is_masked(x: object) -> bool:
    """Whether NumPy would unmask something in it: its own values, or those of arrays in a list, however deep."""
    if np.ma.is_masked(x):
        return True
    inside = x if isinstance(x, Sequence) and not isinstance(x, str | bytes) else ()
    return any(is_masked(one) for one in inside if isinstance(one, Sequence | np.ma.MaskedArray))
