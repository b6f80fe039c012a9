"""The rows of a journal: its tables, records as rows, their checksums, and what those tell of damage."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

from smoothcert.errors import RunError
from smoothcert.files import new_checksum
from smoothcert.runs.records import Record

Row = tuple[Any, ...]
"""One record: the values of ``COLUMNS``, the checksum last."""

LATER = {"base": "INTEGER", "volume_radius": "REAL", "stopped": "TEXT", "checksum": "TEXT"}
"""Columns that journals of earlier versions lack, with their types."""
_FIRST = ("index", "label", "predicted", "abstained", "radius", "sigma", "seconds", "selection", "estimation")
COLUMNS = (*_FIRST, *LATER)

_EARLIEST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT)"""
_WITH_BASE = f"{_EARLIEST[:-1]},\n    base INTEGER)"
CREATE_RECORDS = f"{_WITH_BASE[:-1]}, volume_radius REAL, stopped TEXT, checksum TEXT)"
CREATE_TOTALS = (
    "CREATE TABLE totals (records INTEGER NOT NULL, checksums TEXT NOT NULL, statement TEXT NOT NULL)"
)


def _extended(text: str, columns: Iterable[str]) -> list[str]:
    """The table's text, and what ALTER TABLE makes of it column by column."""
    texts = [text]
    for name in columns:
        texts.append(f"{texts[-1][:-1]}, {name} {LATER[name]})")
    return texts


TABLES: dict[str, Collection[str]] = {
    "records": {*_extended(_EARLIEST, LATER), *_extended(_WITH_BASE, list(LATER)[1:])},
    "totals": [CREATE_TOTALS],
}
"""Every text a table can have been made with: by this version, an earlier one, or one brought up to date."""

_QUOTED = [f'"{name}"' for name in COLUMNS]
INSERT = f"INSERT INTO records ({', '.join(_QUOTED)}) VALUES ({', '.join('?' * len(COLUMNS))})"


def select_rows(missing: Collection[str], order: str = "ASC") -> str:
    """The query for all rows by index, NULL in the columns that the table lacks."""
    columns = ["NULL" if name in missing else quoted for name, quoted in zip(COLUMNS, _QUOTED)]
    return f'SELECT {", ".join(columns)} FROM records ORDER BY "index" {order}'


def row_of(record: Record) -> Row:
    """All columns but the checksum, as SQLite gives them back: a negative zero loses its sign."""
    tallies = [None if t is None else json.dumps(t.as_json()) for t in (record.selection, record.estimation)]
    return (
        record.index,
        record.label,
        record.predicted,
        int(record.abstained),
        record.radius + 0.0,
        record.sigma + 0.0,
        record.seconds + 0.0,
        *tallies,
        record.base,
        None if record.volume_radius is None else record.volume_radius + 0.0,
        record.stopped,
    )


REMEDY = "rerun the original command: it fills in what is missing, to the same bits"
_NUMBERS = struct.Struct("<qqqqddd")
_SHOWN = 10


class DamageWarning(UserWarning):
    """Records that were lost or damaged, and are made again."""


@dataclass(frozen=True)
class Totals:
    """What the table ``totals`` states: the number of records, the sum of their checksums, their statement."""

    records: int
    checksums: int
    statement: str

    def plus(self, checksums: Sequence[str]) -> Totals:
        """With so many records more."""
        total = reduce(xor, (int(text, 16) for text in checksums), self.checksums)
        return Totals(self.records + len(checksums), total, self.statement)

    @property
    def as_text(self) -> str:
        """The sum as the table keeps it."""
        return f"{self.checksums:032x}"


@dataclass(frozen=True)
class Damage:
    """Inputs whose records are damaged, and how many records are lost."""

    inputs: tuple[int, ...] = ()
    lost: int = 0

    def __bool__(self) -> bool:
        return bool(self.inputs or self.lost)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.inputs[:_SHOWN])) + (", …" if len(self.inputs) > _SHOWN else "")
        whose = f"the records of {len(self.inputs)} inputs are damaged ({shown})" if self.inputs else ""
        missing = f"{self.lost} records that were written are missing" if self.lost else ""
        return " and ".join(filter(None, (whose, missing)))

    def refusal(self, path: Path) -> RunError:
        """What a reader says."""
        return RunError(f"{path}: {self}; {REMEDY}")


class RowChecksums:
    """Checksums of rows, each of which takes in the checksum of the run's statement."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        self._start = new_checksum(statement.encode())

    def of(self, row: Sequence[Any]) -> str:
        """Of one row and the statement; struct.error or TypeError where a value isn't of its kind."""
        # Not as JSON: it takes three times as long, and a million rows are read.
        checksum = self._start.copy()
        checksum.update(_NUMBERS.pack(*row[:7]))
        checksum.update("\n".join([str(value) for value in row[7:12]]).encode())
        return checksum.hexdigest()

    def is_intact(self, row: Row) -> bool:
        """Whether a row is what was written."""
        try:
            return bool(self.of(row) == row[-1])
        except (struct.error, TypeError, ValueError):
            return False

    def damage(self, path: Path, rows: Sequence[Row], totals: Totals | None, at_least: int) -> Damage:
        """What is wrong with the rows, of which there were ``at_least`` so many.

        Refuses a journal of which no record was made under the statement: that one was edited, not the records.
        """
        damaged = tuple(row[0] for row in rows if not self.is_intact(row))
        if rows and len(damaged) == len(rows) and (totals is None or totals.statement != self.statement):
            raise RunError(
                f"{path}: its records weren't made with the statement that is in run.json now: it was edited or "
                "damaged; restore it from a copy or choose another directory"
            )
        written = max(at_least, 0 if totals is None else totals.records)
        return Damage(damaged, max(0, written - len(rows)))

    def check(self, path: Path, rows: Sequence[Row], totals: Totals | None, at_least: int) -> None:
        """Refuse rows that aren't all, and exactly, what was written."""
        if damage := self.damage(path, rows, totals, at_least):
            raise damage.refusal(path)
        sound = Totals(0, 0, self.statement if rows or totals is None else totals.statement)
        if totals != sound.plus([row[-1] for row in rows]):
            raise RunError(
                f"{path} is damaged: its records and the sum of their checksums don't agree; {REMEDY}"
            )
