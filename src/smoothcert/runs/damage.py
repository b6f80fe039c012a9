"""Damage to a journal: checksums of its records, what they tell, and the words for it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import xor
from pathlib import Path
from typing import Any

from smoothcert.checksums import BYTES
from smoothcert.errors import RunError
from smoothcert.runs.rows import Row

REMEDY = "give the command that made the run again: it fills in what is missing, to the same bits"
_NUMBERS = struct.Struct("<qqqqddd")
_SHOWN = 10


class DamagedJournalError(RunError):
    """A file that SQLite can't read as a database any more."""


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
        total = reduce(xor, (int(one, 16) for one in checksums), self.checksums)
        return Totals(self.records + len(checksums), total, self.statement)

    @property
    def as_text(self) -> str:
        """The sum as the table keeps it."""
        return f"{self.checksums:0{2 * BYTES}x}"


class Seal:
    """Checksums of rows, each of which takes in the checksum of the run's statement."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        self._start = blake2b(statement.encode(), digest_size=BYTES)

    def checksum(self, row: Sequence[Any]) -> str:
        """Of one row and the statement; struct.error or TypeError where a value isn't of its kind."""
        # Not as JSON: it takes three times as long, and a million rows are read.
        sum_ = self._start.copy()
        sum_.update(_NUMBERS.pack(*row[:7]))
        sum_.update("\n".join([str(value) for value in row[7:12]]).encode())
        return sum_.hexdigest()

    def damaged(self, rows: Iterable[Row]) -> list[int]:
        """The inputs whose rows aren't what was written."""
        found = []
        for row in rows:
            try:
                intact = self.checksum(row) == row[-1]
            except (struct.error, TypeError, ValueError):
                intact = False
            if not intact:
                found.append(row[0])
        return found


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


def damage_of(path: Path, rows: Sequence[Row], totals: Totals | None, seal: Seal, at_least: int) -> Damage:
    """What is wrong with the rows, of which there were ``at_least`` so many.

    Refuses a journal of which no record was made under the statement: that one was edited, not the records.
    """
    damaged = seal.damaged(rows)
    if rows and len(damaged) == len(rows) and (totals is None or totals.statement != seal.statement):
        raise RunError(
            f"{path}: its records weren't made with the statement that is in run.json now: it was edited or "
            "damaged; restore it from a copy or choose another directory"
        )
    written = max(at_least, 0 if totals is None else totals.records)
    return Damage(tuple(damaged), max(0, written - len(rows)))


def check_rows(path: Path, rows: Sequence[Row], totals: Totals | None, seal: Seal, at_least: int) -> None:
    """Refuse rows that aren't all, and exactly, what was written."""
    if damage := damage_of(path, rows, totals, seal, at_least):
        raise damage.refusal(path)
    sound = Totals(0, 0, seal.statement).plus([row[-1] for row in rows])
    if (
        totals is None
        or (totals.records, totals.checksums) != (sound.records, sound.checksums)
        or (rows and totals.statement != sound.statement)
    ):
        raise RunError(f"{path} is damaged: its records and the sum of their checksums don't agree; {REMEDY}")
