"""Journal: one record per finished input, each committed before the next is begun, each with a checksum.

A record's checksum takes in the run's statement. The table ``totals`` holds the number of records and the sum of their
checksums, so that a record that is lost is noticed, too. Journals of earlier versions have neither: they are read as
they are, and get both when they are continued.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import sqlite3
import struct
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from smoothcert.checksums import BYTES
from smoothcert.databases import check_plain_files, distrust, foreign_object
from smoothcert.errors import DataError, RunError
from smoothcert.runs.columns import Records
from smoothcert.runs.records import FARTHEST, MOST_CLASSES, MOST_INPUTS, Record, check_votes
from smoothcert.tally import Tally

FILE_NAME = "journal.sqlite"

_EARLIEST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT)"""
_LATER = {"base": "INTEGER", "volume_radius": "REAL", "stopped": "TEXT", "checksum": "TEXT"}
"""Columns that journals of earlier versions lack."""


def _extended(text: str, columns: dict[str, str]) -> list[str]:
    """The table's text, and what ALTER TABLE makes of it column by column."""
    texts = [text]
    for name, kind in columns.items():
        texts.append(f"{texts[-1][:-1]}, {name} {kind})")
    return texts


_WITH_BASE = f"{_EARLIEST[:-1]},\n    base INTEGER)"
_SCHEMA = f"{_WITH_BASE[:-1]}, volume_radius REAL, stopped TEXT, checksum TEXT)"
_TOTALS = "CREATE TABLE totals (records INTEGER NOT NULL, checksums TEXT NOT NULL, statement TEXT NOT NULL)"
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
_COLUMNS = [
    "index",
    "label",
    "predicted",
    "abstained",
    "radius",
    "sigma",
    "seconds",
    "selection",
    "estimation",
    *_LATER,
]
_NUMBERS = struct.Struct("<qqqqddd")
_SHOWN = 10

_Row = tuple[Any, ...]


class DamagedJournalError(RunError):
    """A file that SQLite can't read as a database any more."""


class DamageWarning(UserWarning):
    """Records that were lost or damaged, and are made again."""


class Journal:
    """An SQLite file in write-ahead mode: a kill at any moment leaves every committed record readable.

    ``statement`` is the checksum of the run's statement. A reader refuses records that aren't what was written under
    it, and, told how many there were ``at_least``, a journal that holds fewer. A writer drops the ones that are damaged
    and says so; ``noted`` hears of the number of records whenever it has grown.
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
        self.statement = statement
        self._writable, self._at_least, self._noted = writable, at_least, noted
        self._start = blake2b(statement.encode(), digest_size=BYTES)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._count, self._sum = 0, 0
        try:
            check_plain_files(path, writable)
        except DataError as error:
            raise RunError(str(error)) from None
        if not writable and not path.exists():
            if at_least:
                raise RunError(self._damage([], at_least))
            raise RunError(f"{path.parent} has no journal: nothing was certified into it yet")
        self._found = path.exists()
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
        if wal.exists() and not (index.exists() and os.access(path.parent, os.W_OK)):
            self._copy = tempfile.TemporaryDirectory(prefix="smoothcert-")
            for one in (path, wal):
                shutil.copyfile(one, Path(self._copy.name) / one.name, follow_symlinks=False)
            path = Path(self._copy.name) / path.name
        elif not wal.exists() and _wants_write_ahead_file(path):
            return f"{path.as_uri()}?mode=ro&immutable=1"
        return f"{path.as_uri()}?mode=ro"

    def _check_schema(self) -> None:
        """Refuse a file that could change what is written, or show what isn't there, by triggers, views or the like."""
        if (found := foreign_object(self._connection, {"records": _FORMS, "totals": [_TOTALS]})) is not None:
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
        with self._transaction():
            present = self._present_columns()
            if not present:
                self._connection.execute(_SCHEMA)
                if self._at_least and self._found:
                    self._tell_of([], self._at_least)
            elif "checksum" in present:
                self._drop_damaged()
            for column in self._missing_columns():
                self._connection.execute(f"ALTER TABLE records ADD COLUMN {column} {_LATER[column]}")
            self._connection.execute("DROP TABLE IF EXISTS totals")
            self._connection.execute(_TOTALS)
            self._connection.execute("INSERT INTO totals VALUES (0, '', ?)", (self.statement,))
            self._seal_all()
        wal = self.path.with_name(f"{self.path.name}-wal")
        self._companion = [wal] if wal.exists() else []  # some file systems allow none
        self._place = self._identity()
        self._note()

    def _drop_damaged(self) -> None:
        rows = self._rows()
        totals = self._totals()
        damaged = self._damaged(rows)
        if rows and len(damaged) == len(rows) and (totals is None or totals[2] != self.statement):
            raise RunError(self._other_statement())
        self._connection.executemany('DELETE FROM records WHERE "index" = ?', [(one,) for one in damaged])
        lost = max(0, max(self._at_least, 0 if totals is None else totals[0]) - len(rows))
        if damaged or lost:
            self._tell_of(damaged, lost)

    def _tell_of(self, damaged: list[int], lost: int) -> None:
        warnings.warn(
            f"{self.path}: {_lost_in_words(damaged, lost)}; what is missing is made again",
            DamageWarning,
            stacklevel=6,
        )

    def _seal_all(self) -> None:
        """Give each record its checksum; those that have one were looked at before."""
        rows = self._rows()
        sums = [(self._checksum(row), row[0]) for row in rows]
        missing = [one for one, row in zip(sums, rows) if row[-1] is None]
        self._connection.executemany('UPDATE records SET checksum = ? WHERE "index" = ?', missing)
        self._count, self._sum = len(rows), 0
        for one, _ in sums:
            self._sum ^= int(one, 16)
        self._write_totals()

    def _write_totals(self) -> None:
        self._connection.execute(
            "UPDATE totals SET records = ?, checksums = ?", (self._count, f"{self._sum:0{2 * BYTES}x}")
        )

    def _note(self) -> None:
        if self._noted is not None:
            self._noted(self._count)

    def _present_columns(self) -> set[str]:
        return {column[1] for column in self._connection.execute("PRAGMA table_info(records)")}

    def _missing_columns(self) -> list[str]:
        present = self._present_columns()
        return [column for column in _LATER if column not in present]

    def append(self, record: Record) -> None:
        """Add a record and wait until it is on disk."""
        self.append_all([record])

    def append_all(self, records: Iterable[Record]) -> None:
        """Add many records in one step: all of them or none."""
        self._check_place()
        columns = ", ".join(f'"{name}"' for name in _COLUMNS)
        statement = f"INSERT INTO records ({columns}) VALUES ({', '.join('?' * len(_COLUMNS))})"
        before = self._count, self._sum
        with self._explained():
            try:
                with self._transaction():
                    for record in records:
                        row = _row(record)
                        sum_ = self._checksum(row)
                        self._connection.execute(statement, (*row, sum_))
                        self._count, self._sum = self._count + 1, self._sum ^ int(sum_, 16)
                    self._write_totals()
            except BaseException:
                self._count, self._sum = before
                raise
        self._note()

    def drop(self, indices: Collection[int]) -> None:
        """Take out the records of inputs that are to be done again."""
        with self._explained(), self._transaction():
            self._connection.executemany('DELETE FROM records WHERE "index" = ?', [(one,) for one in indices])
            self._seal_all()
        self._note()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(
                sqlite3.Error
            ):  # a full disk has ended it already; the cause is what counts
                self._connection.execute("ROLLBACK")
            raise

    def records(self) -> Records:
        """Every record, ordered by index."""
        if not self._begun:
            if self._at_least:
                raise RunError(self._damage([], self._at_least))
            return Records.of(())
        with self._explained(), _collector_at_rest():
            missing = self._missing_columns()
            self._connection.execute("BEGIN")  # what is checked is what is read
            try:
                rows, totals = self._rows(), self._totals()
                if "checksum" not in missing:
                    self._check_sums(rows, totals)
                elif len(rows) < self._at_least:
                    raise RunError(self._damage([], self._at_least - len(rows)))
                self._check_values(missing)
            finally:
                self._connection.execute("ROLLBACK")
            return Records.from_rows(rows, _COLUMNS, self.path)

    def intact_rows(self) -> list[_Row]:
        """What can still be read of a damaged file and is what was written: from the front, then from the back."""
        found: dict[int, _Row] = {}
        for order in ("ASC", "DESC"):
            with contextlib.suppress(sqlite3.Error, ValueError, OverflowError):
                for row in self._connection.execute(self._query(order)):
                    if row[0] in found:
                        break
                    if row[-1] is not None and not self._damaged([row]):
                        found[row[0]] = row
        return list(found.values())

    def _query(self, order: str = "ASC") -> str:
        missing = self._missing_columns()
        columns = ", ".join("NULL" if name in missing else f'"{name}"' for name in _COLUMNS)
        return f'SELECT {columns} FROM records ORDER BY "index" {order}'

    def _rows(self) -> list[_Row]:
        return self._connection.execute(self._query()).fetchall()

    def _totals(self) -> tuple[int, int, str] | None:
        """Number and sum of what was written, and under which statement; None if that can't be read."""
        try:
            (found,) = self._connection.execute("SELECT records, checksums, statement FROM totals").fetchall()
            return int(found[0]), int(found[1] or "0", 16), str(found[2])
        except (sqlite3.Error, ValueError, TypeError):
            return None

    def _checksum(self, row: Sequence[Any]) -> str:
        """Of one row and the statement; struct.error or TypeError where a value isn't of its kind."""
        # Not as JSON: it takes three times as long, and a million rows are read.
        sum_ = self._start.copy()
        sum_.update(_NUMBERS.pack(*row[:7]))
        sum_.update("\n".join([str(value) for value in row[7:12]]).encode())
        return sum_.hexdigest()

    def _damaged(self, rows: Iterable[_Row]) -> list[int]:
        found = []
        for row in rows:
            try:
                intact = self._checksum(row) == row[-1]
            except (struct.error, TypeError, ValueError):
                intact = False
            if not intact:
                found.append(row[0])
        return found

    def _check_sums(self, rows: list[_Row], totals: tuple[int, int, str] | None) -> None:
        """Refuse records that aren't all, and exactly, what was written."""
        damaged = self._damaged(rows)
        if damaged and len(damaged) == len(rows) and (totals is None or totals[2] != self.statement):
            raise RunError(self._other_statement())
        lost = max(self._at_least, 0 if totals is None else totals[0]) - len(rows)
        if damaged or lost > 0:
            raise RunError(self._damage(damaged, max(0, lost)))
        total = 0
        for row in rows:
            total ^= int(row[-1], 16)
        if totals is None or totals[:2] != (len(rows), total) or (rows and totals[2] != self.statement):
            raise RunError(
                f"{self.path} is damaged: its records and the sum of their checksums don't agree{self._remedy()}"
            )

    def _damage(self, damaged: list[int], lost: int) -> str:
        return f"{self.path}: {_lost_in_words(damaged, lost)}{self._remedy()}"

    def _remedy(self) -> str:
        return "; give the command that made the run again: it fills in what is missing, to the same bits"

    def _other_statement(self) -> str:
        return (
            f"{self.path}: its records weren't made with the statement that is in run.json now: it was edited or "
            "damaged; restore it from a copy or choose another directory"
        )

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

    def _identity(self) -> list[tuple[int, int]]:
        """Which files they are, by device and number: those that are written to."""
        found = [one.stat() for one in (self.path.parent, self.path, *self._companion)]
        return [(one.st_dev, one.st_ino) for one in found]

    def _check_place(self) -> None:
        """Notice at once that the directory was taken away: what is written to it would be lost."""
        if not self._writable:
            return
        try:
            same = self._identity() == self._place
        except OSError:
            same = False
        if not same:
            raise RunError(
                f"{self.path.parent} was removed, renamed or replaced while it was written to: what it held is not "
                "added to any more; put it back, or choose another --out, and give the same command again"
            )

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
            kind = DamagedJournalError if _is_damage(error) else RunError
            raise kind(f"{self.path}: {_explanation(error)}") from None
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            struct.error,
        ) as error:
            raise RunError(f"{self.path}: a record is damaged ({error}); restore the file") from None
        except OSError as error:
            raise RunError(f"{self.path} can't be read: {error.strerror}") from None


def salvage(path: Path, statement: str) -> None:
    """Put what is intact of a file that SQLite can't read into a new one; the damaged one is kept beside it."""
    rows: list[_Row] = []
    with contextlib.suppress(RunError), Journal(path, statement=statement) as damaged:
        rows = damaged.intact_rows()
    path.replace(path.with_name(f"{path.name}.damaged"))
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with Journal(path, writable=True, statement=statement) as fresh:
        fresh.append_all(_record(row) for row in rows)
    warnings.warn(
        f"{path} was damaged: {len(rows)} records could be saved, and what is missing is made again (the damaged file "
        f"is {path.name}.damaged)",
        DamageWarning,
        stacklevel=5,
    )


def _lost_in_words(damaged: Sequence[int], lost: int) -> str:
    shown = ", ".join(map(str, damaged[:_SHOWN])) + (", …" if len(damaged) > _SHOWN else "")
    whose = f"the records of {len(damaged)} inputs are damaged ({shown})" if damaged else ""
    missing = f"{lost} records that were written are missing" if lost else ""
    return " and ".join(filter(None, (whose, missing)))


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
    if _is_damage(error):
        return (
            f"the journal is damaged ({text}); give the command that made the run again: it fills in what is missing, "
            "to the same bits; or restore it from a copy"
        )
    return text


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or not code


def _row(record: Record) -> _Row:
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


def _record(row: _Row) -> Record:
    index, label, predicted, _, radius, sigma, seconds, selection, estimation, *later, _ = row
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
