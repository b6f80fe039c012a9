"""Tables whose held columns are texts, categories or whole numbers: the model gets those as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError

_NAMING_BITS = 52  # exact in float64


OwnValues = Mapping[tuple[str, float], Any]
"""What a number in a held column stands for: an array of pandas' of one value, which keeps its type."""


def held_table(
    x: Any, names: Sequence[str], held: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], OwnValues] | None:
    """A pandas table, its columns in the order of ``names``, of which some are held; None of anything else.

    As numbers, in which a number stands for each text, and what the model gets in their stead. Floats are numbers like
    any other; what else is held goes to the model in its own type.
    """
    if getattr(x, "ndim", None) == 1 and hasattr(x, "to_frame"):  # a row, which calls its columns an index
        x = x.to_frame().T.infer_objects()
    if not hasattr(x, "iloc") or list(getattr(x, "columns", ())) != list(names):
        return None
    kept = [name for name, hold in zip(names, held) if hold and getattr(x[name].dtype, "kind", "O") != "f"]
    if not kept:
        return None
    text = [name for name, hold in zip(names, held) if not hold and not _holds_numbers(x[name])]
    if text:
        raise InvalidValueError(
            f"columns that hold no numbers, and aren't held: {', '.join(map(repr, text))}. Noise is added to numbers: "
            "hold them as well, or encode them first"
        )
    numbers = {name: _numbers(x[name]) for name in names}
    own = {
        (name, number): x[name].array[row : row + 1]
        for name in kept
        for row, number in enumerate(numbers[name].tolist())
    }
    return np.column_stack(list(numbers.values())), own


def _holds_numbers(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(column: Any) -> NDArray[np.float64]:
    if not _holds_numbers(column):
        return np.array([_number_naming(value) for value in column.tolist()], dtype=np.float64)
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:  # missing values of pandas' own kind
        raise InvalidValueError(
            f"column {column.name!r} isn't all numbers: {str(error).splitlines()[0]}"
        ) from None


def _number_naming(value: object) -> int:
    """A number by which random streams tell this value from others."""
    digest = hashlib.sha256(f"{type(value).__name__} {value!r}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _NAMING_BITS)
