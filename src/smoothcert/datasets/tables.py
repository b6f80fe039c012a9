"""Tables of numbers and categories: ``csv:FILE?target=COLUMN`` and ``parquet:FILE?target=COLUMN``."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, PATH_FORMS, Dataset
from smoothcert.datasets.published import BANK, candidate_places, missing_files
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.extras import require
from smoothcert.files import opened_file
from smoothcert.perturb.columns import Columns, Value
from smoothcert.registry import unknown_name

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>"})
"""Cells without a value, as pandas reads them."""

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_MOST_CATEGORIES = 1000
_MOST_CLASSES = 1000
_TEST_SHARE = 0.2
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class TableOptions:
    """What stands behind the ``?`` of a table: ``csv:bank.csv?target=y&categorical=month,day``."""

    target: str = ""
    """The column of classes."""
    categorical: tuple[str, ...] = ()
    """Columns of categories whose cells are numbers; a column with text is one without being named."""
    ignore: tuple[str, ...] = ()
    """Columns that the model does not see: identifiers, dates."""
    separator: str = ""
    """Of a csv file: one character, or comma, semicolon, tab or pipe; empty: as the header suggests."""
    test: str = ""
    """Another file, whose rows are the test split; those of this file are then all training rows."""

    @classmethod
    def parse(cls, spec: str) -> tuple[str, TableOptions]:
        """The path, and the options behind its last ``?``; characters of names may be percent-encoded."""
        path, mark, text = spec.rpartition("?")
        if not mark:
            return spec, cls()
        known = {field.name: field for field in fields(cls)}
        values: dict[str, Any] = {}
        for part in filter(None, text.split("&")):
            name, _, value = part.partition("=")
            if name not in known:
                raise unknown_name("option of a table", name, list(known))
            several = isinstance(known[name].default, tuple)
            values[name] = tuple(map(unquote, value.split(","))) if several else unquote(value)
        return path, cls(**values)

    def spec(self, path: str) -> str:
        """The inverse of :meth:`parse`."""
        parts = []
        for name, value in vars(self).items():
            texts = [
                quote(text, safe=" ;|/()[]:.") for text in ([value] if isinstance(value, str) else value)
            ]
            parts += [f"{name}={','.join(texts)}"] if value else []
        return f"{path}?{'&'.join(parts)}" if parts else path


def with_options(name: str, given: Mapping[str, Any]) -> str:
    """A data set's name or path with these options of tables; refused where it is not a table."""
    if not given:
        return name
    form, colon, path = name.partition(":") if name.startswith(("csv:", "parquet:")) else ("", "", name)
    location, options = TableOptions.parse(path)
    if not form and Path(location).suffix not in (".csv", ".parquet"):
        raise InvalidValueError(
            f"--{next(iter(given))} is for tables (csv:PATH, parquet:PATH), and {name} is not one: leave it out"
        )
    return form + colon + replace(options, **given).spec(location)


@dataclass(frozen=True)
class _Cells:
    """A table as text: what a column holds, and where each row stands."""

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: Sequence[int]
    typed: Mapping[str, str]
    """Columns whose type the file states: "number", "text", "truth" or "category"."""

    def of(self, name: str) -> list[str]:
        return self.columns[self.names.index(name)]

    def place(self, row: int) -> str:
        return f"{self.path}, line {self.lines[row]}"


@PATH_FORMS.register("csv")
def load_csv(path: Path, split: str) -> Dataset:
    """One split of a csv file, whose first line names its columns; the separator is the header's unless it is given.

    A column of numbers is numeric unless it is declared categorical; every other column is categorical. Rows go to the
    splits by a hash of their inputs: about a fifth is ``test``, whatever the order of the rows.
    """
    return _loaded("csv", path, split, _read_csv)


@PATH_FORMS.register("parquet")
def load_parquet(path: Path, split: str) -> Dataset:
    """One split of a Parquet file, as of a csv file; columns have the types that the file states."""
    return _loaded("parquet", path, split, _read_parquet)


@DATASETS.register("bank")
def load_bank(split: str, root: Path | None) -> Dataset:
    """UCI bank marketing (Moro et al., 2014): 4521 clients, 7 numbers, 9 categories, and whether they subscribed."""
    places = candidate_places(root, BANK.folders)
    found = next((place / "bank.csv" for place in places if (place / "bank.csv").is_file()), None)
    if found is None:
        raise missing_files("bank", "bank.csv", places)
    return replace(load_csv(Path(f"{found}?target=y"), split), name="bank")


def _loaded(form: str, named: Path, split: str, read: Callable[[Path, TableOptions], _Cells]) -> Dataset:
    location, options = TableOptions.parse(str(named))
    spec = f"{form}:{options.spec(location)}"
    tables = []
    for place in filter(None, (location, options.test)):
        path = Path(place).expanduser()
        if not path.is_file():
            raise DataError(f"{path}: expected a {form} file, found no such file")
        tables.append(read(path, options))
        _check_options(tables[-1], options, spec)
    # From all rows: a code must not depend on the split that is read.
    columns = _columns(tables, options)
    classes = _classes(tables, options.target)
    if options.test:
        chosen = tables[split == "test"]
        rows = np.arange(len(chosen.lines))
    else:
        chosen = tables[0]
        in_test = _in_test(chosen, options.target)
        if in_test.all() or not in_test.any():
            raise DataError(
                f"{chosen.path}: {len(in_test)} rows are too few for a training and a test split; name a file of test "
                "rows with test=FILE"
            )
        rows = np.flatnonzero(in_test == (split == "test"))
    stored = np.column_stack([_encoded(chosen, columns, name, rows) for name in columns.names])
    known = {str(value): place for place, value in enumerate(classes)}
    answers = chosen.of(options.target)
    labels = np.array([_code(answers[row], known, -1) for row in rows.tolist()], dtype=np.int64)
    return Dataset(spec, stored, labels, tuple(known), columns=columns)


def as_frame(dataset: Dataset) -> tuple[Any, NDArray[Any]]:
    """The table of a data set as a pandas DataFrame, and its target in its own type: what models are fitted to."""
    if dataset.columns is None:
        raise InvalidValueError(f"{dataset.name} is not a table: read one with csv:FILE or parquet:FILE")
    classes = np.array(_typed(dataset.classes, None))
    if [str(name) for name in classes.tolist()] != list(dataset.classes):
        classes = np.array(dataset.classes)
    return dataset.columns.table(np.asarray(dataset.stored)), classes[dataset.labels]


def recoded(dataset: Dataset, columns: Columns) -> Dataset:
    """The same rows as the columns of a model have them: by name, in their order, with their codes.

    A value that the model does not know gets the code of unknown values; further columns of the table are left out.
    """
    have = dataset.columns
    if have is None:
        raise InvalidValueError(f"{dataset.name} is not a table: read one with csv:FILE or parquet:FILE")
    stored, made = np.asarray(dataset.stored), []
    for name in columns.names:
        if name not in have.names:
            raise DataError(
                f"the model was fitted to the column {name!r}, which {dataset.name} does not have; it has "
                f"{', '.join(have.names)}"
            )
        cells = stored[:, have.names.index(name)]
        given, wanted = have.categories.get(name), columns.categories.get(name)
        if given == wanted:
            made.append(cells)
        elif wanted:
            made.append(_as_codes(cells, given, wanted))
        elif given and any(isinstance(value, str) for value in given):
            raise DataError(f"{dataset.name}: column {name!r} holds {given[0]!r}, the model had numbers")
        elif given and (cells >= len(given)).any():
            raise DataError(f"{dataset.name}: column {name!r} misses a number, which the model was fitted to")
        else:
            made.append(cells if not given else np.array(given, dtype=np.float64)[cells.astype(np.intp)])
    return replace(dataset, stored=np.column_stack(made), columns=columns)


def encoded_as(dataset: Dataset, plan: Mapping[str, Any]) -> Dataset:
    """A table with the columns and codes that a run's plan states; any other data set as it is."""
    stated = plan.get("columns")
    if stated is None or dataset.columns is None:
        return dataset
    return dataset.encoded_by(Columns.from_json(stated))


def _as_codes(
    cells: NDArray[np.float64], given: tuple[Value, ...] | None, wanted: tuple[Value, ...]
) -> NDArray[np.float64]:
    """The codes among ``wanted`` of cells that hold numbers, or codes among ``given``."""
    known = {_same_text(value): code for code, value in enumerate(wanted)}
    codes = [known.get(_same_text(value), len(wanted)) for value in given or cells.tolist()]
    found: NDArray[np.float64] = np.array([*codes, len(wanted)], dtype=np.float64)
    return found.take(cells.astype(np.intp).clip(0, len(given))) if given else found[:-1]


def _same_text(value: Value) -> str:
    """By which a category is found again: 1.0 is 1, and "1", which a csv file can't tell from it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# Files.


def _read_csv(path: Path, options: TableOptions) -> _Cells:
    separator = _SEPARATORS.get(options.separator, options.separator)
    if len(separator) > 1:
        raise InvalidValueError(
            f"separator must be 1 character or {', '.join(_SEPARATORS)}, got {separator!r}"
        )
    try:
        with opened_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            if not first.strip():
                raise DataError(f"{path}: the file is empty; expected a line of column names")
            text.seek(0)
            # Unless it is given, the separator that gives the header the most columns; a comma where none does.
            columns = {
                each: len(next(csv.reader([first], delimiter=each), [])) for each in _SEPARATORS.values()
            }
            reader = csv.reader(
                text, delimiter=separator or max(columns, key=columns.__getitem__), strict=True
            )
            names = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(next(reader))]
            _check_names(path, names)
            rows, lines = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, but the header has {len(names)} columns; "
                        "quote cells that contain the separator, or name another with --separator"
                    )
                rows.append(row)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}); save it in UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path}: expected a csv file ({error}); save it again") from None
    return _Cells(path, names, [list(column) for column in zip(*rows)] or [[] for _ in names], lines, {})


def _read_parquet(path: Path, options: TableOptions) -> _Cells:
    parquet, arrow = require("pyarrow.parquet", f"reading {path}"), require("pyarrow", f"reading {path}")
    try:
        table = parquet.ParquetFile(path).read()
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: expected a Parquet file ({str(error).splitlines()[0]})") from None
    names, typed, columns = [str(name) for name in table.column_names], {}, []
    _check_names(path, names)
    kinds = arrow.types
    for name, column in zip(names, table.columns):
        kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
        if kinds.is_boolean(kind):
            typed[name] = "truth"
        elif kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
            typed[name] = "number"
        elif kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind):
            typed[name] = "text"
        elif name not in options.ignore:
            raise DataError(
                f"{path}: column {name!r} has the type {column.type}; expected numbers, text or truths. Convert it, or "
                f"leave it out with --ignore {name}"
            )
        if kinds.is_dictionary(column.type):
            typed[name] = "text" if typed.get(name) == "text" else "category"
        columns.append(["" if value is None else str(value) for value in column.to_pylist()])
    return _Cells(path, names, columns, range(1, table.num_rows + 1), typed)


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two columns have the name {twice!r}; rename one of them")
    if len(names) < 2:
        raise DataError(
            f"{path}: the header has {len(names)} column; expected a target and inputs. Name the separator with "
            "--separator if it is an unusual one"
        )


def _check_options(cells: _Cells, options: TableOptions, spec: str) -> None:
    if not options.target:
        mark = "&" if "?" in spec else "?"
        raise DataError(
            f"{cells.path}: name the column of classes with --target, or as {spec}{mark}target=COLUMN; the columns are "
            f"{', '.join(cells.names)}"
        )
    for option in ("target", "categorical", "ignore"):
        value = getattr(options, option)
        for name in [value] if isinstance(value, str) else value:
            if name not in cells.names:
                raise DataError(f"{cells.path}: --{option}: {unknown_name('column', name, cells.names)}")
            if option != "target" and name == options.target:
                raise DataError(f"{cells.path}: {name!r} is the target; leave it out of --{option}")
    if len(cells.names) == 1 + len(set(options.ignore)):
        raise DataError(f"{cells.path}: no column is left beside the target; name fewer with --ignore")
    if not cells.lines:
        raise DataError(f"{cells.path}: the table has no rows below its header")


# Meaning.


def _in_test(cells: _Cells, target: str) -> NDArray[np.bool_]:
    """Which rows are test rows, by a hash of all cells but the target: equal inputs are never in both splits."""
    inputs = [column for name, column in zip(cells.names, cells.columns) if name != target]
    limit = int(_TEST_SHARE * 2**32)
    hashes = (hashlib.blake2b("\x1f".join(row).encode(), digest_size=4).digest() for row in zip(*inputs))
    return np.array([int.from_bytes(one, "big") < limit for one in hashes], dtype=bool)


def _columns(tables: Sequence[_Cells], options: TableOptions) -> Columns:
    """Which columns are numbers, and the categories of the others."""
    names = [name for name in tables[0].names if name != options.target and name not in options.ignore]
    categories: dict[str, tuple[Value, ...]] = {}
    for name in names:
        for cells in tables[1:]:
            if name not in cells.names:
                raise DataError(f"{cells.path}: {unknown_name('column', name, cells.names)}")
        rows = sum(len(cells.lines) for cells in tables)
        present = [text for cells in tables for text in cells.of(name) if text not in MISSING]
        typed = tables[0].typed.get(name)
        declared = name in options.categorical
        # One odd cell in a column of numbers is a mistake, which its line is told of; many are categories.
        numbers = sum(map(bool, map(_NUMBER.fullmatch, present)))
        if not declared and (
            typed == "number" or (typed is None and numbers and 10 * numbers >= 9 * len(present))
        ):
            continue
        values = _typed(set(present), typed)
        if not declared and len(values) > min(_MOST_CATEGORIES, max(20, rows // 2)):
            raise DataError(
                f"{tables[0].path}: column {name!r} has {len(values)} different texts, such as {values[0]!r}: leave it "
                f"out with --ignore {name}, or declare it with --categorical {name}"
            )
        categories[name] = tuple(values)
    return Columns(tuple(names), categories)


def _classes(tables: Sequence[_Cells], target: str) -> list[Any]:
    for cells in tables:
        answers = cells.of(target)
        if (row := next((row for row, text in enumerate(answers) if text in MISSING), None)) is not None:
            raise DataError(f"{cells.place(row)}: target {target!r} has no value; fill it in or drop the row")
    classes = _typed({text for cells in tables for text in cells.of(target)}, tables[0].typed.get(target))
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise DataError(
            f"{tables[0].path}: the target {target!r} has {len(classes)} different values; expected 2 to "
            f"{_MOST_CLASSES} classes"
        )
    return classes


def _typed(texts: Iterable[str], typed: str | None) -> list[Any]:
    """Sorted values in the types that pandas reads them in: whole numbers, other numbers, truths, or texts."""
    found = sorted(texts)
    if typed == "text" or not found:
        return found
    if set(found) <= {"True", "False"}:
        return [text == "True" for text in found]
    if not all(map(_NUMBER.fullmatch, found)):
        return found
    for kind in (int, float):
        try:
            values = sorted({kind(text) for text in found})
        except ValueError:
            continue
        return values if all(map(math.isfinite, values)) else found
    return found


def _encoded(cells: _Cells, columns: Columns, name: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    texts = cells.of(name)
    if name in columns.categories:
        known = {_same_text(value): code for code, value in enumerate(columns.categories[name])}
        found = {text: _code(text, known, len(known)) for text in set(texts)}
        return np.array([found[texts[row]] for row in rows.tolist()], dtype=np.float64)
    numbers = np.empty(len(rows))
    for place, row in enumerate(rows.tolist()):
        text = texts[row]
        if text in MISSING:
            raise DataError(
                f"{cells.place(row)}: column {name!r} has no number. Fill it in or drop the row; or declare the column "
                f"with --categorical {name}, or leave it out with --ignore {name}"
            )
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not abs(value) <= _LARGEST:
            raise DataError(
                f"{cells.place(row)}: column {name!r} holds {text!r}; expected finite numbers within float32. Correct "
                f"the cell, or declare the column with --categorical {name}"
            )
        numbers[place] = value
    return numbers


def _code(text: str, known: Mapping[str, int], unknown: int) -> int:
    if text not in known and _NUMBER.fullmatch(text):  # 01 and 1.0 for the category 1
        text = _same_text(float(text))
    return known.get(text, unknown)
