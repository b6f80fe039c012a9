"""Journal: one record per finished input, each committed before the next is begun."""

from __future__ import annotations

import contextlib
import gc
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.errors import RunError
from smoothcert.runs.records import Record
from smoothcert.tally import Tally

FILE_NAME = "journal.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT,
    base INTEGER, volume_radius REAL, stopped TEXT)
"""
_LATER = {"base": "INTEGER", "volume_radius": "REAL", "stopped": "TEXT"}
"""Columns that journals of earlier versions lack."""
_TABLE_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'records'"
_COLUMNS = ["index", "label", "predicted", "radius", "sigma", "seconds", "selection", "estimation", *_LATER]


class Journal:
    """An SQLite file in write-ahead mode: a kill at any moment leaves every committed record readable."""

    def __init__(self, path: Path, writable: bool = False) -> None:
        self.path = path
        self._writable = writable
        if not writable and not path.exists():
            raise RunError(f"{path.parent} has no journal: nothing was certified into it yet")
        with self._explained():
            address = f"{path.absolute().as_uri()}?mode={'rwc' if writable else 'ro'}"
            self._connection = sqlite3.connect(address, uri=True, timeout=10.0, isolation_level=None)
            try:
                if writable:
                    self._take_for_writing()
                # A reader may come between the file's creation and the table's: that run has no records yet.
                self._begun = writable or self._connection.execute(_TABLE_EXISTS).fetchone() is not None
            except BaseException:
                self._connection.close()
                raise

    def _take_for_writing(self) -> None:
        """Check the file before anything is added to it (:func:`open_run` keeps other writers out)."""
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_SCHEMA)
        for column in self._missing_columns():
            self._connection.execute(f"ALTER TABLE records ADD COLUMN {column} {_LATER[column]}")

    def _missing_columns(self) -> list[str]:
        present = {column[1] for column in self._connection.execute("PRAGMA table_info(records)")}
        return [column for column in _LATER if column not in present]

    def append(self, record: Record) -> None:
        """Add a record and wait until it is on disk."""
        with self._explained():
            self._connection.execute(
                'INSERT INTO records ("index", label, predicted, abstained, radius, sigma, seconds, selection, '
                "estimation, base, volume_radius, stopped) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                _row(record),
            )

    def append_all(self, records: list[Record]) -> None:
        """Add many records in one step: all of them or none."""
        with self._explained():
            self._connection.execute("BEGIN")
            try:
                for record in records:
                    self.append(record)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def records(self, tallies: bool = True) -> list[Record]:
        """Every record, ordered by index; without ``tallies`` (they are None then) several times as fast."""
        if not self._begun:
            return []
        with self._explained(), _collector_at_rest():
            left_out = {*self._missing_columns(), *(() if tallies else ("selection", "estimation"))}
            columns = ", ".join("NULL" if name in left_out else f'"{name}"' for name in _COLUMNS)
            rows = self._connection.execute(f'SELECT {columns} FROM records ORDER BY "index"').fetchall()
            return [_record(*row) for row in rows] if tallies else [Record(*row) for row in rows]

    def indices(self) -> set[int]:
        """The inputs that are done."""
        if not self._begun:
            return set()
        with self._explained():
            return {index for (index,) in self._connection.execute('SELECT "index" FROM records')}

    def close(self) -> None:
        """Let go; a writer first folds the write-ahead file in, so that a finished run is one plain file."""
        if self._writable:
            with contextlib.suppress(
                sqlite3.Error
            ):  # a reader is looking: the write-ahead file stays, and is valid
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors in the user's words."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise RunError(f"{self.path}: the input is in the journal already ({error})") from None
        except sqlite3.Error as error:
            raise RunError(f"{self.path}: {_explanation(error)}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self.path}: a record is damaged ({error}); restore the file") from None


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


def _explanation(error: sqlite3.Error) -> str:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR:
        return f"{text}: free some space and give the same command again; what was journalled is safe"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process is certifying into this run; wait for it or choose another --out"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or not code:
        return f"the journal is damaged ({text}); restore it from a copy or certify into a new directory"
    return text


def _row(record: Record) -> tuple[object, ...]:
    tallies = [None if t is None else json.dumps(t.as_json()) for t in (record.selection, record.estimation)]
    return (
        record.index,
        record.label,
        record.predicted,
        int(record.abstained),
        record.radius,
        record.sigma,
        record.seconds,
        *tallies,
        record.base,
        record.volume_radius,
        record.stopped,
    )


def _record(*row: Any) -> Record:
    index, label, predicted, radius, sigma, seconds, selection, estimation, *later = row
    tallies = _tally(selection), _tally(estimation)
    return Record(index, label, predicted, radius, sigma, seconds, *tallies, *later)


def _tally(text: str | None) -> Tally | None:
    return None if text is None else Tally.from_json(json.loads(text))
