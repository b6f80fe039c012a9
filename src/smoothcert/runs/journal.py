"""Journal: one record per finished input, each committed before the next is begun, each with a checksum.

A record's checksum takes in the run's statement. The table ``totals`` holds the number of records and the sum of their
checksums, so that a lost record is also noticed. Journals of earlier versions have neither: they are read as they are,
and get both when they are continued.
"""

from __future__ import annotations

import gc
import json
import sqlite3
import struct
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any, Self

from smoothcert import databases
from smoothcert.errors import DataError, RunError
from smoothcert.files import new_checksum
from smoothcert.runs.records import UNREADABLE, Record, Records

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
    whole = record.index, record.label, record.predicted, int(record.abstained)
    sizes = record.radius + 0.0, record.sigma + 0.0, record.seconds + 0.0
    volume = None if record.volume_radius is None else record.volume_radius + 0.0
    return (*whole, *sizes, *tallies, record.base, volume, record.stopped)


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
            raise RunError(f"{path} is damaged: records and the sum of checksums don't agree; {REMEDY}")


class DamagedJournalError(RunError):
    """A file that SQLite can't read as a database any more."""


class Journal:
    """An SQLite file: a kill at any moment leaves every committed record readable.

    In write-ahead mode, so that readers may look at a run under way; on a network file system with a rollback journal.

    ``statement`` is the checksum of the run's statement. A reader refuses records that aren't what was written under
    it, and a journal that holds fewer than ``at_least``. A writer drops the damaged ones and warns; ``noted`` is called
    with the number of records whenever it has grown.
    """

    def __init__(
        self,
        path: Path,
        writable: bool = False,
        statement: str = "",
        at_least: int = 0,
        noted: Callable[[int], None] | None = None,
    ) -> None:
        self.path = path
        self._checksums = RowChecksums(statement)
        self._at_least, self._noted = at_least, noted
        self._totals = Totals(0, 0, statement)
        self._identity: databases.FileIdentity | None = None
        try:
            databases.check_plain_files(path, writable)
        except DataError as error:
            raise RunError(str(error)) from None
        existed = path.exists()
        if not writable and not existed:
            if at_least:
                raise Damage(lost=at_least).refusal(path)
            raise RunError(f"{path.parent} has no journal: nothing was certified into it yet")
        with _explained(path), ExitStack() as held:
            self._connection = _opened(path, writable, held)
            if writable:
                self._take_for_writing(existed)
            # A reader may come between the file's creation and the table's: that run has no records yet.
            self._begun = writable or bool(self._present_columns())
            self._held = held.pop_all()

    def _take_for_writing(self, existed: bool) -> None:
        """Drop what is damaged, bring an earlier version's file up to date (``open_run`` keeps other writers out).

        From then on what is committed is on disk: on a network file system by a rollback journal, which needs no shared
        memory, and the lock is kept to the end.
        """
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        mode = "WAL" if databases.network_mount(self.path) is None else "DELETE"
        self._connection.execute(f"PRAGMA journal_mode = {mode}")
        self._connection.execute("PRAGMA synchronous = FULL")
        with databases.transaction(self._connection):
            present, damage = self._present_columns(), Damage()
            if not present:
                self._connection.execute(CREATE_RECORDS)
                damage = Damage(lost=self._at_least if existed else 0)
            elif "checksum" in present:
                rows, totals = self._rows(), self._stated_totals()
                damage = self._checksums.damage(self.path, rows, totals, self._at_least)
                self._delete(damage.inputs)
            if damage:
                text = f"{self.path}: {damage}; what is missing is made again"
                warnings.warn(text, DamageWarning, stacklevel=4)
            for column in self._missing_columns():
                self._connection.execute(f"ALTER TABLE records ADD COLUMN {column} {LATER[column]}")
            self._connection.execute("DROP TABLE IF EXISTS totals")
            self._connection.execute(CREATE_TOTALS)
            self._connection.execute("INSERT INTO totals VALUES (0, '', ?)", (self._checksums.statement,))
            totals = self._counted_anew()
        wal = self.path.with_name(f"{self.path.name}-wal")  # some file systems allow none
        self._identity = databases.FileIdentity(self.path.parent, self.path, *([wal] if wal.exists() else []))
        self._settle(totals)

    def _counted_anew(self) -> Totals:
        """Give each record its checksum, those that have one being intact; returns the new totals."""
        rows = self._rows()
        checksums = [self._checksums.of(row) for row in rows]
        missing = [(checksum, row[0]) for checksum, row in zip(checksums, rows) if row[-1] is None]
        self._connection.executemany('UPDATE records SET checksum = ? WHERE "index" = ?', missing)
        return self._written(Totals(0, 0, self._checksums.statement).plus(checksums))

    def _written(self, totals: Totals) -> Totals:
        self._connection.execute(
            "UPDATE totals SET records = ?, checksums = ?", (totals.records, f"{totals.checksums:032x}")
        )
        return totals

    def _settle(self, totals: Totals) -> None:
        self._totals = totals
        if self._noted is not None:
            self._noted(totals.records)

    def append(self, record: Record) -> None:
        """Add a record and wait until it is on disk."""
        self.append_all([record])

    def append_all(self, records: Iterable[Record]) -> None:
        """Add many records in one step: all of them or none."""
        self.append_rows(map(row_of, records))

    def append_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """The same for records as :func:`row_of` makes them, what a checksum was is left out."""
        if self._identity is not None and not self._identity.is_same():
            raise RunError(
                f"{self.path.parent} was removed, renamed or replaced while it was written to: what it held is not "
                "added to any more; put it back, or choose another --out, and rerun the same command"
            )
        checksums: list[str] = []
        with _explained(self.path), databases.transaction(self._connection):
            for row in rows:
                values = row[: len(COLUMNS) - 1]
                checksums.append(self._checksums.of(values))
                self._connection.execute(INSERT, (*values, checksums[-1]))
            totals = self._written(self._totals.plus(checksums))
        self._settle(totals)

    def drop(self, indices: Collection[int]) -> None:
        """Take out the records of inputs that are to be done again."""
        with _explained(self.path), databases.transaction(self._connection):
            self._delete(indices)
            totals = self._counted_anew()
        self._settle(totals)

    def _delete(self, indices: Collection[int]) -> None:
        self._connection.executemany('DELETE FROM records WHERE "index" = ?', [(index,) for index in indices])

    def records(self) -> Records:
        """Every record, ordered by index."""
        if not self._begun:
            if self._at_least:
                raise Damage(lost=self._at_least).refusal(self.path)
            return Records.of(())
        with _explained(self.path), _collector_at_rest():
            with databases.snapshot(self._connection):  # what is checked is what is read
                rows = self._rows()
                if "checksum" in self._present_columns():
                    self._checksums.check(self.path, rows, self._stated_totals(), self._at_least)
                elif len(rows) < self._at_least:
                    raise Damage(lost=self._at_least - len(rows)).refusal(self.path)
            return self._read(rows)

    def some(self, most: int) -> Records:
        """Records that are there, ``most`` or fewer, evenly from the first to the last; others may have been lost."""
        with _explained(self.path):
            rows = self._rows() if self._begun else []
            return self._read(rows[:: max(1, -(-len(rows) // most))])

    def _read(self, rows: list[Row]) -> Records:
        return Records.read(dict(zip(COLUMNS, zip(*rows))), self.path)

    def indices(self) -> set[int]:
        """The inputs that are done."""
        if not self._begun:
            return set()
        with _explained(self.path):
            return {index for (index,) in self._connection.execute('SELECT "index" FROM records')}

    def intact_rows(self) -> list[Row]:
        """What can still be read of a damaged file and is what was written: from the front, then from the back."""
        intact: dict[int, Row] = {}
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error, ValueError, OverflowError):
                for row in self._connection.execute(select_rows(self._missing_columns(), order)):
                    if row[0] in intact:
                        break
                    if self._checksums.is_intact(row):
                        intact[row[0]] = row
        return list(intact.values())

    def _rows(self) -> list[Row]:
        return self._connection.execute(select_rows(self._missing_columns())).fetchall()

    def _stated_totals(self) -> Totals | None:
        """What the file says of its records; None if that can't be read."""
        try:
            (stated,) = self._connection.execute(
                "SELECT records, checksums, statement FROM totals"
            ).fetchall()
            return Totals(int(stated[0]), int(stated[1] or "0", 16), str(stated[2]))
        except (sqlite3.Error, ValueError, TypeError):
            return None

    def _present_columns(self) -> set[str]:
        return {column[1] for column in self._connection.execute("PRAGMA table_info(records)")}

    def _missing_columns(self) -> list[str]:
        present = self._present_columns()
        return [column for column in LATER if column not in present]

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def salvage(path: Path, statement: str) -> None:
    """Put what is intact of a file that SQLite can't read into a new one; the damaged one is kept beside it."""
    rows: list[Row] = []
    with suppress(RunError), Journal(path, statement=statement) as damaged:
        rows = damaged.intact_rows()
    path.replace(path.with_name(f"{path.name}.damaged"))
    for end in databases.COMPANIONS:
        path.with_name(path.name + end).unlink(missing_ok=True)
    with Journal(path, writable=True, statement=statement) as fresh:
        fresh.append_rows(rows)
    warnings.warn(
        f"{path} was damaged: {len(rows)} records could be saved, and what is missing is made again (the damaged file "
        f"is {path.name}.damaged)",
        DamageWarning,
        stacklevel=5,
    )


def check_writable_place(path: Path) -> None:
    """Refuse a directory in which a lock doesn't keep out a writer on another machine."""
    mount = databases.network_mount(path)
    if mount is not None and (reason := mount.without_locks) is not None:
        raise RunError(
            f"{path} is on a network file system ({mount.kind} at {mount.point}) where two machines could write one "
            f"run at once: {reason}. Certify on a local disk and copy the finished run, or its shards (--shard), there"
        )


def _opened(path: Path, writable: bool, held: ExitStack) -> sqlite3.Connection:
    """The file, which must hold a journal's tables alone; ``held`` closes it.

    A writer's end folds the write-ahead file in, so that a finished run is one regular file.
    """
    if writable:
        connection = databases.connect_sqlite(path, held)
        held.callback(_fold_in, connection)
        if databases.network_mount(path) is not None:
            # Before the first look at the file: one that is in write-ahead mode would be shared memory's to index.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    else:
        connection = databases.connect_to_read(path, held)
    if (foreign := databases.foreign_object(connection, TABLES)) is not None:
        raise RunError(
            f"{path} is not a journal that smoothcert made: it holds {foreign}, which could falsify the results; "
            "don't trust this run. Restore the file from a copy or certify into a new directory"
        )
    return connection


def _fold_in(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # a reader is looking: the write-ahead file stays, and is valid
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors in the user's words."""
    try:
        yield
    except databases.SQLITE_ERRORS as error:
        problem = databases.sqlite_problem(error)
        words = {
            "no locks": f"this file system refuses locks ({error}): keep the run on a local disk, and copy it there "
            "when it is finished",
            "full": f"{error}: free some space and rerun the same command; what was journalled is safe",
            "busy": "another process is certifying into this run; wait for it or choose another --out",
            "damaged": f"the journal is damaged ({error}); {REMEDY}; or restore it from a copy",
            "twice": f"the input is in the journal already ({error})",
        }
        kind = DamagedJournalError if problem == "damaged" else RunError
        raise kind(f"{path}: {words.get(problem, error)}") from None
    except UNREADABLE as error:
        raise RunError(f"{path}: a record is damaged ({error}); restore the file") from None
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}") from None


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """While many records are made, none of which is garbage: walking them over and over takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
