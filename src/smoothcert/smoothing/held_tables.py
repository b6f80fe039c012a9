"""Tables whose held columns are texts, categories or whole numbers: the model gets those as they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.inputs import content_of, same_value

_NAMING_BITS = 52  # exact in float64


OwnValues = Mapping[tuple[str, float], Any]
"""What a number in a held column stands for: an array of pandas' of one value, which keeps its type."""


def held_table(
    x: Any, names: Sequence[str], held: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], OwnValues] | None:
    """A pandas table, its columns in the order of ``names``, of which some are held; None of anything else.

    As numbers, in which a number stands for each text, and what the model gets in their stead. Floats are numbers like
    any other; what else is held goes to the model in its own type. Two values never have one number: they are refused.
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
    numbers = {name: _numbers(x[name], kept=name in kept) for name in names}
    own = {
        (name, number): x[name].array[row : row + 1]
        for name in kept
        for number, row in _first_rows(x[name], numbers[name]).items()
    }
    return np.column_stack(list(numbers.values())), own


def _first_rows(column: Any, numbers: NDArray[np.float64]) -> dict[float, int]:
    """The first row of each number; refused where a later one has another value."""
    values, rows = column.tolist(), dict[float, int]()
    for row, number in enumerate(numbers.tolist()):
        first = rows.setdefault(number, row)
        one, other = values[first], values[row]
        if first != row and not (same_value(one, other) or _both_missing(one, other)):
            raise InvalidValueError(
                f"column {column.name!r} holds values of {type(other).__name__} in rows {first} and {row} that can't "
                "be told apart by what they print, or don't say whether they are equal: certify such rows one at a time"
            )
    return rows


def _both_missing(one: object, other: object) -> bool:
    """Whether both are floats that aren't numbers, which equal nothing."""
    return isinstance(one, float) and isinstance(other, float) and one != one and other != other


def _holds_numbers(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(column: Any, *, kept: bool) -> NDArray[np.float64]:
    """A column as float64; what that doesn't have gets a number that stands for it, if its own value is ``kept``."""
    if not _holds_numbers(column):
        return np.array([_number_naming(value) for value in column.tolist()], dtype=np.float64)
    try:
        found = np.array(column, dtype=np.float64)
    except (TypeError, ValueError) as error:  # missing values of pandas' own kind
        raise InvalidValueError(
            f"column {column.name!r} isn't all numbers: {str(error).splitlines()[0]}"
        ) from None
    for row in np.flatnonzero(np.abs(found) >= 1 << 53).tolist():
        value = column.iloc[row]
        if getattr(column.dtype, "kind", "O") not in "iu" or int(value) == int(found[row]):
            continue
        if not kept:
            raise InvalidValueError(
                f"column {column.name!r} holds {value}, which isn't exact in float64, where noise is added: subtract "
                "an offset"
            )
        found[row] = _number_naming(int(value))
    return found


def _number_naming(value: object) -> int:
    """A number by which random streams tell this value from others; arrays go by their bits, not by what they print."""
    told = content_of(value) or f"{type(value).__name__} {value!r}".encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:8], "big") >> (64 - _NAMING_BITS)
