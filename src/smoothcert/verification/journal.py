"""A run's journal, whoever made it: its file can do nothing by itself, and nothing in the run's directory changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from smoothcert.databases import SQLITE_ERRORS, check_plain_files, distrust, foreign_object
from smoothcert.errors import DataError, RunError
from smoothcert.files import opened_file
from smoothcert.verification.checksums import Totals

JOURNAL = "journal.sqlite"
_TRIES, _PAUSE = 20, 0.05
_HEADER = 32  # bytes at the start of a write-ahead file or rollback journal: those of another round differ

_FIRST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT"""
_ADDED = ("volume_radius REAL", "stopped TEXT", "checksum TEXT")
TABLES: dict[str, Collection[str]] = {
    "records": frozenset(
        [
            f"{_FIRST})",
            *(
                ", ".join((f"{_FIRST},{space}base INTEGER", *_ADDED[:count])) + ")"
                for space in (" ", "\n    ")
                for count in range(len(_ADDED) + 1)
            ),
        ]
    ),
    "totals": frozenset(
        ["CREATE TABLE totals (records INTEGER NOT NULL, checksums TEXT NOT NULL, statement TEXT NOT NULL)"]
    ),
}
"""Every text that smoothcert has made a journal's tables with. Any other could compute forever, or falsify."""


class Journal:
    """The records of one moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(records)")]

    def count(self) -> int:
        """How many records there are to verify, in a file that is whole."""
        if not self._columns:
            return 0
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        (rows,) = self._connection.execute("SELECT count(*) FROM records").fetchone()
        return int(rows)

    def rows(self, begin: Callable[[Totals | None], None]) -> Iterator[dict[str, Any]]:
        """The rows in the order of their indices; ``begin`` is called first, with the totals."""
        if not self._columns:
            return
        begin(self._totals())
        for row in self._connection.execute('SELECT * FROM records ORDER BY "index"'):
            yield dict(zip(self._columns, row))

    def _totals(self) -> Totals | None:
        """What the journal says of its records; None where it says nothing, as those of earlier versions."""
        if "checksum" not in self._columns:
            return None
        try:
            found = self._connection.execute("SELECT records, checksums, statement FROM totals").fetchall()
            ((records, checksums, statement),) = found
            return Totals(int(records), int(checksums or "0", 16), str(statement))
        except (ValueError, TypeError, OverflowError, sqlite3.OperationalError) as error:
            raise sqlite3.DatabaseError(f"no totals of its records: {error}") from None


@contextmanager
def opened_journal(directory: Path) -> Iterator[Journal]:
    """The journal of a run; RunError where there is none, or one that is damaged, a link, or not of our making."""
    path = directory / JOURNAL
    try:
        with ExitStack() as held:
            connection = _connected(path, held)
            distrust(connection)
            if (found := foreign_object(connection, TABLES)) is not None:
                raise RunError(
                    f"{path} is no journal that smoothcert made: it holds {found}, which could falsify the results; "
                    "don't trust this run"
                )
            yield Journal(connection)
    except SQLITE_ERRORS as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN:
            raise RunError(f"{path} can't be opened ({error}); check its permissions") from None
        raise RunError(f"{path} is damaged ({error}); get the run again") from None
    except DataError as error:
        raise RunError(str(error)) from None


def _connected(path: Path, held: ExitStack) -> sqlite3.Connection:
    """To the file itself where nothing lies beside it, and no lock is needed then; else to a copy.

    SQLite would write to an index beside a write-ahead file, and roll back what a killed writer left half done.
    """
    for _ in range(_TRIES):
        check_plain_files(path, writing=False)
        if not path.exists():
            raise RunError(f"{path.parent} has no {JOURNAL}: there is nothing to verify")
        beside = [one for end in ("-wal", "-journal") if (one := path.with_name(f"{JOURNAL}{end}")).exists()]
        if not beside:
            return _connect(path, "mode=ro&immutable=1", held)
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
        if _copied(path, beside, folder):
            return _connect(folder / JOURNAL, "mode=rw", held)
        time.sleep(_PAUSE)
    raise RunError(f"{path}: another process is writing it all the time; wait for it to end")


def _connect(path: Path, mode: str, held: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
    held.callback(connection.close)
    return connection


def _copied(path: Path, beside: list[Path], folder: Path) -> bool:
    """Whether the files could be copied as they were at one moment: a writer may be at work."""
    try:
        before = _moment(path, beside)
        for one in (path, *beside):
            with opened_file(one, links=False) as source, (folder / one.name).open("wb") as target:
                size, free = os.fstat(source.fileno()).st_size, shutil.disk_usage(folder).free
                if size > free:
                    raise RunError(
                        f"{one} has to be copied to be read, and {folder.parent} has no room for its {size} bytes"
                    )
                shutil.copyfileobj(source, target)
        return before == _moment(path, beside)
    except FileNotFoundError:
        return False  # the writer is done, and took it away
    except OSError as error:
        raise RunError(f"{path} can't be copied to {folder.parent}: {error.strerror}") from None


def _moment(path: Path, beside: list[Path]) -> tuple[object, ...]:
    """What differs once a writer has changed the file, or begun the one beside it anew; that may have grown."""
    found = path.stat()
    headers = []
    for one in beside:
        with opened_file(one, links=False) as file:
            headers.append(file.read(_HEADER))
    return found.st_ino, found.st_size, found.st_mtime_ns, *headers
