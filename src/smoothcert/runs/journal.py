"""Journal: one record per finished input, each committed before the next is begun, each with a checksum.

A record's checksum takes in the run's statement. The table ``totals`` holds the number of records and the sum of their
checksums, so that a lost record is also noticed. Journals of earlier versions have neither: they are read as they are,
and get both when they are continued.
"""

from __future__ import annotations

import gc
import sqlite3
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from smoothcert.databases import (
    COMPANIONS,
    SQLITE_ERRORS,
    FileIdentity,
    check_plain_files,
    connect_sqlite,
    connect_to_read,
    foreign_object,
    network_mount,
    snapshot,
    sqlite_problem,
    transaction,
)
from smoothcert.errors import DataError, RunError
from smoothcert.runs.journal_rows import (
    COLUMNS,
    CREATE_RECORDS,
    CREATE_TOTALS,
    INSERT,
    LATER,
    REMEDY,
    TABLES,
    Damage,
    DamageWarning,
    Row,
    RowChecksums,
    Totals,
    row_of,
    select_rows,
)
from smoothcert.runs.records import UNREADABLE, Record, Records

__all__ = ["DamageWarning", "DamagedJournalError", "Journal", "check_writable_place", "salvage"]


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
        self._identity: FileIdentity | None = None
        try:
            check_plain_files(path, writable)
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
        mode = "WAL" if network_mount(self.path) is None else "DELETE"
        self._connection.execute(f"PRAGMA journal_mode = {mode}")
        self._connection.execute("PRAGMA synchronous = FULL")
        with transaction(self._connection):
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
        self._identity = FileIdentity(self.path.parent, self.path, *([wal] if wal.exists() else []))
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
            "UPDATE totals SET records = ?, checksums = ?", (totals.records, totals.as_text)
        )
        return totals

    def _settle(self, totals: Totals) -> None:
        """After a commit: these are the totals now."""
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
        with _explained(self.path), transaction(self._connection):
            for row in rows:
                values = row[: len(COLUMNS) - 1]
                checksums.append(self._checksums.of(values))
                self._connection.execute(INSERT, (*values, checksums[-1]))
            totals = self._written(self._totals.plus(checksums))
        self._settle(totals)

    def drop(self, indices: Collection[int]) -> None:
        """Take out the records of inputs that are to be done again."""
        with _explained(self.path), transaction(self._connection):
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
            with snapshot(self._connection):  # what is checked is what is read
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
    for end in COMPANIONS:
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
    mount = network_mount(path)
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
        connection = connect_sqlite(path, held)
        held.callback(_fold_in, connection)
        if network_mount(path) is not None:
            # Before the first look at the file: one that is in write-ahead mode would be shared memory's to index.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    else:
        connection = connect_to_read(path, held)
    if (foreign := foreign_object(connection, TABLES)) is not None:
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
    except SQLITE_ERRORS as error:
        problem = sqlite_problem(error)
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
