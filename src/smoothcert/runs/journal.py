"""Journal: one record per finished input, each committed before the next is begun."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothcert.databases import check_plain_files, distrust, foreign_object
from smoothcert.errors import DataError, RunError
from smoothcert.runs.records import FARTHEST, MOST_CLASSES, MOST_INPUTS, Record, check_votes
from smoothcert.tally import Tally

FILE_NAME = "journal.sqlite"

_EARLIEST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT)"""
_LATER = {"base": "INTEGER", "volume_radius": "REAL", "stopped": "TEXT"}
"""Columns that journals of earlier versions lack."""


def _extended(text: str, columns: dict[str, str]) -> list[str]:
    """The table's text, and what ALTER TABLE makes of it column by column."""
    texts = [text]
    for name, kind in columns.items():
        texts.append(f"{texts[-1][:-1]}, {name} {kind})")
    return texts


_WITH_BASE = f"{_EARLIEST[:-1]},\n    base INTEGER)"
_SCHEMA = f"{_WITH_BASE[:-1]}, volume_radius REAL, stopped TEXT)"
_FORMS = frozenset(
    _extended(_EARLIEST, _LATER)
    + _extended(_WITH_BASE, {name: kind for name, kind in _LATER.items() if name != "base"})
)
"""Every text the table can have been made with: by this version, an earlier one, or one that was brought up to date."""

# SQLite keeps any value in any column. Figures are computed from these, so they are looked at before they are used.
_SENSELESS = f"""
SELECT "index" FROM records WHERE NOT (
    "index" BETWEEN 0 AND {MOST_INPUTS}
    AND typeof(label) = 'integer' AND label BETWEEN 0 AND {MOST_CLASSES}
    AND typeof(predicted) = 'integer' AND predicted BETWEEN -1 AND {MOST_CLASSES}
    AND typeof(radius) = 'real' AND radius BETWEEN 0 AND {FARTHEST!r}
    AND typeof(sigma) = 'real' AND sigma BETWEEN 0 AND {FARTHEST!r}
    AND typeof(seconds) = 'real' AND seconds BETWEEN 0 AND 1e15
    AND typeof(selection) IN ('null', 'text') AND typeof(estimation) IN ('null', 'text')
    {{later}}) LIMIT 1
"""
_SENSELESS_LATER = {
    "base": f"AND (base IS NULL OR typeof(base) = 'integer' AND base BETWEEN 0 AND {MOST_CLASSES})",
    "volume_radius": f"AND (volume_radius IS NULL OR typeof(volume_radius) = 'real' "
    f"AND volume_radius BETWEEN 0 AND {FARTHEST!r})",
    "stopped": "AND (stopped IS NULL OR typeof(stopped) = 'text' AND length(stopped) <= 1000)",
}
_COLUMNS = ["index", "label", "predicted", "radius", "sigma", "seconds", "selection", "estimation", *_LATER]


class Journal:
    """An SQLite file in write-ahead mode: a kill at any moment leaves every committed record readable."""

    def __init__(self, path: Path, writable: bool = False) -> None:
        self.path = path
        self._writable = writable
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            check_plain_files(path, writable)
        except DataError as error:
            raise RunError(str(error)) from None
        if not writable and not path.exists():
            raise RunError(f"{path.parent} has no journal: nothing was certified into it yet")
        with self._explained():
            self._connection = sqlite3.connect(self._address(), uri=True, timeout=10.0, isolation_level=None)
            try:
                distrust(self._connection)
                self._check_schema()
                if writable:
                    self._take_for_writing()
                # A reader may come between the file's creation and the table's: that run has no records yet.
                self._begun = writable or bool(self._present_columns())
            except BaseException:
                self.close()
                raise

    def _address(self) -> str:
        """Where to open it. Reading adds no file to the directory: it may be somebody else's.

        A write-ahead file without its index was left by a process that is gone, and is read in a copy; a file that is
        to have one and hasn't is read as it is.
        """
        path = self.path.absolute()
        if self._writable:
            return f"{path.as_uri()}?mode=rwc"
        wal, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
        if wal.exists() and not index.exists():
            self._copy = tempfile.TemporaryDirectory(prefix="smoothcert-")
            for one in (path, wal):
                shutil.copyfile(one, Path(self._copy.name) / one.name, follow_symlinks=False)
            path = Path(self._copy.name) / path.name
        elif not wal.exists() and _wants_write_ahead_file(path):
            return f"{path.as_uri()}?mode=ro&immutable=1"
        return f"{path.as_uri()}?mode=ro"

    def _check_schema(self) -> None:
        """Refuse a file that could change what is written, or show what isn't there, by triggers, views or the like."""
        if (found := foreign_object(self._connection, {"records": _FORMS})) is not None:
            raise RunError(
                f"{self.path} is no journal that smoothcert made: it holds {found}, which could falsify the results; "
                "don't trust this run. Restore the file from a copy or certify into a new directory"
            )

    def _take_for_writing(self) -> None:
        """Check the file before anything is added to it (:func:`open_run` keeps other writers out)."""
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if not self._present_columns():
            self._connection.execute(_SCHEMA)
        for column in self._missing_columns():
            self._connection.execute(f"ALTER TABLE records ADD COLUMN {column} {_LATER[column]}")

    def _present_columns(self) -> set[str]:
        return {column[1] for column in self._connection.execute("PRAGMA table_info(records)")}

    def _missing_columns(self) -> list[str]:
        present = self._present_columns()
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
            missing = self._missing_columns()
            left_out = {*missing, *(() if tallies else ("selection", "estimation"))}
            columns = ", ".join("NULL" if name in left_out else f'"{name}"' for name in _COLUMNS)
            self._connection.execute("BEGIN")  # what is checked is what is read
            try:
                self._check_values(missing)
                rows = self._connection.execute(f'SELECT {columns} FROM records ORDER BY "index"').fetchall()
            finally:
                self._connection.execute("ROLLBACK")
            return [_record(*row) for row in rows] if tallies else [Record(*row) for row in rows]

    def _check_values(self, missing: list[str]) -> None:
        later = " ".join(check for name, check in _SENSELESS_LATER.items() if name not in missing)
        found = self._connection.execute(_SENSELESS.format(later=later)).fetchone()
        if found is not None:
            raise RunError(
                f"{self.path}: the record of input {found[0]} is damaged: a class, radius, σ or time in it is no such "
                "number; restore the file"
            )

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
        if self._copy is not None:
            self._copy.cleanup()

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
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
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
    record = Record(index, label, predicted, radius, sigma, seconds, *tallies, *later)
    check_votes(record)
    return record


def _tally(text: str | None) -> Tally | None:
    # Plain, because a million of them are read: what it lets through, a tally's own check doesn't.
    return None if text is None else Tally.from_json(json.loads(text))


def _wants_write_ahead_file(path: Path) -> bool:
    """Whether the file's header says that it is in write-ahead mode."""
    with path.open("rb") as file:
        file.seek(18, os.SEEK_SET)
        return file.read(2) == b"\x02\x02"
