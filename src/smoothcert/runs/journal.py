"""Journal: one record per finished input, each committed before the next is begun, each with a checksum.

A record's checksum takes in the run's statement. The table ``totals`` holds the number of records and the sum of their
checksums, so that a lost record is noticed, too. Journals of earlier versions have neither: they are read as they are,
and get both when they are continued.
"""

from __future__ import annotations

import gc
import sqlite3
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from smoothcert.databases import COMPANIONS, transaction
from smoothcert.errors import RunError
from smoothcert.runs.columns import Records
from smoothcert.runs.damage import (
    Damage,
    DamagedJournalError,
    DamageWarning,
    Seal,
    Totals,
    check_rows,
    damage_of,
)
from smoothcert.runs.journal_file import (
    Place,
    check_files,
    explained,
    open_database,
    prepare_for_writing,
    snapshot,
)
from smoothcert.runs.records import Record
from smoothcert.runs.rows import (
    COLUMNS,
    CREATE_RECORDS,
    CREATE_TOTALS,
    INSERT,
    LATER,
    Row,
    record_of,
    row_of,
    select_rows,
    select_senseless,
)

__all__ = ["DamageWarning", "DamagedJournalError", "Journal", "salvage"]


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
        self._seal = Seal(statement)
        self._at_least, self._noted = at_least, noted
        self._totals = Totals(0, 0, statement)
        self._place: Place | None = None
        check_files(path, writable)
        self._existed = path.exists()
        if not writable and not self._existed:
            if at_least:
                raise Damage(lost=at_least).refusal(path)
            raise RunError(f"{path.parent} has no journal: nothing was certified into it yet")
        with explained(path), ExitStack() as held:
            self._connection = open_database(path, writable, held)
            if writable:
                self._take_for_writing()
            # A reader may come between the file's creation and the table's: that run has no records yet.
            self._begun = writable or bool(self._present_columns())
            self._held = held.pop_all()

    def _take_for_writing(self) -> None:
        """Drop what is damaged, bring an earlier version's file up to date (``open_run`` keeps other writers out)."""
        prepare_for_writing(self.path, self._connection)
        with transaction(self._connection):
            present = self._present_columns()
            if not present:
                self._connection.execute(CREATE_RECORDS)
                if self._existed:
                    self._warn_of(Damage(lost=self._at_least))
            elif "checksum" in present:
                damage = damage_of(self.path, self._rows(), self._stated_totals(), self._seal, self._at_least)
                self._delete(damage.inputs)
                self._warn_of(damage)
            for column in self._missing_columns():
                self._connection.execute(f"ALTER TABLE records ADD COLUMN {column} {LATER[column]}")
            self._connection.execute("DROP TABLE IF EXISTS totals")
            self._connection.execute(CREATE_TOTALS)
            self._connection.execute("INSERT INTO totals VALUES (0, '', ?)", (self._seal.statement,))
            totals = self._seal_all()
        self._place = Place(self.path)
        self._settle(totals)

    def _warn_of(self, damage: Damage) -> None:
        if damage:
            text = f"{self.path}: {damage}; what is missing is made again"
            warnings.warn(text, DamageWarning, stacklevel=5)

    def _seal_all(self) -> Totals:
        """Give each record its checksum, those that have one being intact; returns the new totals."""
        rows = self._rows()
        sums = [self._seal.checksum(row) for row in rows]
        missing = [(one, row[0]) for one, row in zip(sums, rows) if row[-1] is None]
        self._connection.executemany('UPDATE records SET checksum = ? WHERE "index" = ?', missing)
        return self._written(Totals(0, 0, self._seal.statement).plus(sums))

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
        if self._place is not None:
            self._place.check()
        sums: list[str] = []
        with explained(self.path), transaction(self._connection):
            for record in records:
                row = row_of(record)
                sums.append(self._seal.checksum(row))
                self._connection.execute(INSERT, (*row, sums[-1]))
            totals = self._written(self._totals.plus(sums))
        self._settle(totals)

    def drop(self, indices: Collection[int]) -> None:
        """Take out the records of inputs that are to be done again."""
        with explained(self.path), transaction(self._connection):
            self._delete(indices)
            totals = self._seal_all()
        self._settle(totals)

    def _delete(self, indices: Collection[int]) -> None:
        self._connection.executemany('DELETE FROM records WHERE "index" = ?', [(one,) for one in indices])

    def records(self) -> Records:
        """Every record, ordered by index."""
        if not self._begun:
            if self._at_least:
                raise Damage(lost=self._at_least).refusal(self.path)
            return Records.of(())
        with explained(self.path), _collector_at_rest():
            with snapshot(self._connection):  # what is checked is what is read
                rows = self._rows()
                missing = self._missing_columns()
                if "checksum" not in missing:
                    check_rows(self.path, rows, self._stated_totals(), self._seal, self._at_least)
                elif len(rows) < self._at_least:
                    raise Damage(lost=self._at_least - len(rows)).refusal(self.path)
                self._check_values(missing)
            return Records.from_rows(rows, COLUMNS, self.path)

    def some(self, most: int) -> Records:
        """Records that are there, ``most`` or fewer, evenly from the first to the last; others may have been lost."""
        with explained(self.path):
            rows = self._rows() if self._begun else []
        return Records.from_rows(rows[:: max(1, -(-len(rows) // most))], COLUMNS, self.path)

    def _check_values(self, missing: Collection[str]) -> None:
        found = self._connection.execute(select_senseless(missing)).fetchone()
        if found is not None:
            raise RunError(
                f"{self.path}: the record of input {found[0]} is damaged: a class, radius, σ or time in it is no such "
                "number; restore the file"
            )

    def indices(self) -> set[int]:
        """The inputs that are done."""
        if not self._begun:
            return set()
        with explained(self.path):
            return {index for (index,) in self._connection.execute('SELECT "index" FROM records')}

    def intact_rows(self) -> list[Row]:
        """What can still be read of a damaged file and is what was written: from the front, then from the back."""
        found: dict[int, Row] = {}
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error, ValueError, OverflowError):
                for row in self._connection.execute(select_rows(self._missing_columns(), order)):
                    if row[0] in found:
                        break
                    if row[-1] is not None and not self._seal.damaged([row]):
                        found[row[0]] = row
        return list(found.values())

    def _rows(self) -> list[Row]:
        return self._connection.execute(select_rows(self._missing_columns())).fetchall()

    def _stated_totals(self) -> Totals | None:
        """What the file says of its records; None if that can't be read."""
        try:
            (found,) = self._connection.execute("SELECT records, checksums, statement FROM totals").fetchall()
            return Totals(int(found[0]), int(found[1] or "0", 16), str(found[2]))
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

    def __enter__(self) -> Journal:
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
        fresh.append_all(record_of(row) for row in rows)
    warnings.warn(
        f"{path} was damaged: {len(rows)} records could be saved, and what is missing is made again (the damaged file "
        f"is {path.name}.damaged)",
        DamageWarning,
        stacklevel=5,
    )


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
