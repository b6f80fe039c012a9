"""Columns of a table: which are categories, the value behind each code, and rows of numbers out of any table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.registry import unknown_name

Value = str | int | float | bool
_EXACT = 1 << 53
_MOST_CATEGORIES = 100_000
"""Of one column; with more, it holds names or texts, and not categories."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table in their order, and the categories of those that aren't numbers.

    In a row of numbers a category is its place among ``categories``; a value that isn't one of them, or is missing, has
    a code of its own, which is their number. A column without stated categories holds whole numbers as they are.
    """

    names: tuple[str, ...]
    """Of all columns, in the order of a row."""
    categories: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The values of each categorical column, in the order of their codes."""

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names):
            raise InvalidValueError(
                f"columns need names that differ, got {', '.join(map(repr, self.names)) or 'none'}"
            )
        for name in self.categories:
            if name not in self.names:
                raise unknown_name("column", name, list(self.names))
        # In the order of the columns, so that equal ones are written alike.
        ordered = {name: tuple(self.categories[name]) for name in self.names if name in self.categories}
        object.__setattr__(self, "categories", ordered)

    def __hash__(self) -> int:
        return hash((self.names, tuple(self.categories.items())))

    @classmethod
    def infer(cls, table: Any, categorical: Sequence[str | int] | None = None) -> Self:
        """The columns of a DataFrame or of an array of rows, and the categories that it holds.

        ``categorical`` names them, or gives their places; by default they are those of texts, categories and truths.
        """
        if hasattr(table, "iloc"):
            names = tuple(str(name) for name in table.columns)
            values = [table.iloc[:, place] for place in range(len(names))]
            kinds = [getattr(column.dtype, "kind", "O") in "iuf" for column in values]
        else:
            array = np.asarray(table)
            if array.ndim != 2:
                raise InvalidValueError(f"a table has rows and columns, got an array of shape {array.shape}")
            names = tuple(f"column {place}" for place in range(array.shape[1]))
            values, kinds = list(array.T), [array.dtype.kind in "iuf"] * len(names)
        places = _places(categorical, names, kinds)
        known = hasattr(table, "iloc") or np.asarray(table).dtype.kind not in "iuf"
        categories = {
            names[place]: _categories(names[place], values[place]) if known else () for place in places
        }
        return cls(names, categories)

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """The places of the categorical columns."""
        return tuple(place for place, name in enumerate(self.names) if name in self.categories)

    @cached_property
    def numeric(self) -> tuple[int, ...]:
        """The places of the others."""
        return tuple(place for place, name in enumerate(self.names) if name not in self.categories)

    def rows(self, table: Any) -> NDArray[np.float64]:
        """Rows of numbers: of a DataFrame or a list of mappings several, of a Series or a mapping one.

        Arrays of numbers are rows already.
        """
        if isinstance(table, Mapping):
            return np.asarray(self.rows([table])[0])
        if hasattr(table, "iloc"):
            if table.ndim == 1:
                return np.asarray(self.rows([dict(zip(map(str, table.index), table.tolist()))])[0])
            self._check_names([str(name) for name in table.columns])
            by_name = {str(name): table.iloc[:, place].tolist() for place, name in enumerate(table.columns)}
        elif isinstance(table, Sequence) and table and isinstance(table[0], Mapping):
            for row in table:
                self._check_names([str(name) for name in row])
            by_name = {name: [row[name] for row in table] for name in self.names}
        else:
            return _numbers_of(table, len(self.names))
        return np.column_stack([self._encoded(name, by_name[name]) for name in self.names])

    def table(self, rows: NDArray[np.float64]) -> Any:
        """The DataFrame that rows of numbers stand for; masks and codes that no value has are missing values.

        Texts are pandas' categories; numbers and truths are floats, as missing values make them.
        """
        pandas = require("pandas", "a model of named columns")
        made: dict[str, Any] = {}
        for place, name in enumerate(self.names):
            column, known = rows[:, place], self.categories.get(name)
            if known and not self._are_numbers(name):
                with np.errstate(invalid="ignore"):
                    inside = (column >= 0) & (column < len(known))
                codes = np.where(inside, column, -1).astype(np.intp)
                made[name] = pandas.Categorical.from_codes(codes, self._dtypes[name].categories)
            elif known:
                places = np.where(np.isnan(column), len(known), column).astype(np.intp)
                made[name] = np.array([*map(float, known), np.nan]).take(places, mode="clip")
            else:
                made[name] = column
        return pandas.DataFrame(made)

    def text(self, place: int, value: float) -> str:
        """A number of a row as the table has it: a category by name, ``?`` where no category has this code."""
        known = self.categories.get(self.names[place])
        if not known:
            return f"{value:.6g}"
        return str(known[int(value)]) if 0 <= value < len(known) else "?"

    def _are_numbers(self, name: str) -> bool:
        return not any(isinstance(value, str) for value in self.categories[name])

    @cached_property
    def _dtypes(self) -> dict[str, Any]:
        pandas = require("pandas", "a model of named columns")
        return {
            name: pandas.CategoricalDtype(list(values))
            for name, values in self.categories.items()
            if values and not self._are_numbers(name)
        }

    @cached_property
    def _codes(self) -> dict[str, dict[tuple[str, Value], int]]:
        """The code of each value: True isn't 1, and 1.0 is."""
        return {
            name: {_key(value): code for code, value in enumerate(values)}
            for name, values in self.categories.items()
        }

    def _check_names(self, given: Sequence[str]) -> None:
        for missing in (name for name in self.names if name not in given):
            raise InvalidValueError(
                f"the inputs have no column {missing!r}; they have {', '.join(given[:12])}"
            )

    def _encoded(self, name: str, values: Sequence[Any]) -> NDArray[np.float64]:
        codes = self._codes.get(name)
        if codes:
            return np.array([codes.get(_key(value), len(codes)) for value in values], dtype=np.float64)
        found = [_number(name, value, row) for row, value in enumerate(values)]
        return np.array(found, dtype=np.float64)

    def as_json(self) -> dict[str, Any]:
        """In plain values."""
        return {
            "names": list(self.names),
            "categories": {name: list(values) for name, values in self.categories.items()},
        }

    @classmethod
    def from_json(cls, stated: Any) -> Self:
        """The inverse of :meth:`as_json`; ValueError for what it can't have written."""
        if not isinstance(stated, Mapping) or stated.keys() != {"names", "categories"}:
            raise ValueError("columns are stated by names and categories")
        names, categories = stated["names"], stated["categories"]
        if not isinstance(names, list) or not all(type(name) is str for name in names):
            raise ValueError("names of columns must be texts")
        if not isinstance(categories, Mapping) or not all(
            isinstance(values, list) and all(type(value) in (str, int, float, bool) for value in values)
            for values in categories.values()
        ):
            raise ValueError("categories must be lists of texts, numbers and truths")
        return cls(tuple(names), {name: tuple(values) for name, values in categories.items()})


def _places(
    categorical: Sequence[str | int] | None, names: Sequence[str], numbers: Sequence[bool]
) -> list[int]:
    if categorical is None:
        return [place for place, number in enumerate(numbers) if not number]
    found = []
    for one in categorical:
        if isinstance(one, str) and one not in names:
            raise unknown_name("column", one, list(names))
        place = names.index(one) if isinstance(one, str) else int(one)
        if not 0 <= place < len(names):
            raise InvalidValueError(f"columns are numbered from 0 to {len(names) - 1}, got {one!r}")
        found.append(place)
    if text := [names[place] for place, number in enumerate(numbers) if not number and place not in found]:
        raise InvalidValueError(
            f"columns that hold no numbers, and aren't declared as categories: {', '.join(map(repr, text))}. Noise is "
            "added to numbers: declare them as well, or encode them first"
        )
    return sorted(set(found))


def _categories(name: str, column: Any) -> tuple[Value, ...]:
    """The values of a column: of pandas' categories in their order, else sorted by type and value.

    Missing ones are none of them.
    """
    declared = getattr(getattr(column, "dtype", None), "categories", None)
    values = (column if declared is None else declared).tolist()
    different = {_key(value): value for value in values if not _missing(value)}
    if len(different) > _MOST_CATEGORIES:
        raise InvalidValueError(
            f"column {name!r} holds {len(different)} different values, where a categorical column has at most "
            f"{_MOST_CATEGORIES}: leave it out"
        )
    for value in different.values():
        if type(value) not in (str, int, float, bool):
            raise InvalidValueError(
                f"column {name!r} holds a {type(value).__name__}: categories are texts, numbers and truths"
            )
    return tuple(different[key] for key in (sorted(different) if declared is None else different))


def _key(value: Any) -> tuple[str, Any]:
    """By which equal categories are found: NumPy's scalars as Python's, whole floats as whole numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value).__name__, value if isinstance(value, str | bool) else repr(value)
    return "number", value


def _missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _number(name: str, value: Any, row: int) -> float:
    if _missing(value):
        raise InvalidValueError(f"column {name!r} misses a value in row {row}: fill it in, or drop the row")
    if not isinstance(value, bool | int | float | np.bool_ | np.number):
        raise InvalidValueError(f"column {name!r} holds {value!r} in row {row}, where numbers are expected")
    if isinstance(value, int | np.integer) and abs(int(value)) > _EXACT:
        raise InvalidValueError(
            f"column {name!r} holds {value}, which isn't exact in float64: subtract an offset"
        )
    return float(value)


def _numbers_of(table: Any, width: int) -> NDArray[np.float64]:
    array = np.asarray(table)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or array.shape[-1] != width:
        raise InvalidValueError(
            f"rows have {width} numbers or the names of {width} columns, got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.float64)
