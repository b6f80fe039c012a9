"""A journal's SQLite file: opened without a trace by readers, safe against a kill for its writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from smoothcert.databases import SQLITE_ERRORS, check_plain_files, distrust, foreign_object
from smoothcert.errors import DataError, RunError
from smoothcert.mounts import network_mount
from smoothcert.runs.damage import REMEDY, DamagedJournalError
from smoothcert.runs.records import UNREADABLE
from smoothcert.runs.rows import TABLES

_NO_LOCKS = (
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_UNLOCK,
    sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
)


def check_files(path: Path, writable: bool) -> None:
    """Refuse a file that is, or whose companions are, links or no plain files."""
    try:
        check_plain_files(path, writable)
    except DataError as error:
        raise RunError(str(error)) from None


def open_database(path: Path, writable: bool, held: ExitStack) -> sqlite3.Connection:
    """Connect to a file whose schema can do nothing by itself; ``held`` closes what was opened.

    A writer's end folds the write-ahead file in, so that a finished run is one plain file.
    """
    if writable:
        connection = _connect(f"{path.absolute().as_uri()}?mode=rwc", held)
        held.callback(_fold_in, connection)
    else:
        connection = _connected_to_read(path.absolute(), held)
    distrust(connection)
    if writable and network_mount(path) is not None:
        # Before the first look at the file: one that is in write-ahead mode would be shared memory's to index.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    if (found := foreign_object(connection, TABLES)) is not None:
        raise RunError(
            f"{path} is no journal that smoothcert made: it holds {found}, which could falsify the results; "
            "don't trust this run. Restore the file from a copy or certify into a new directory"
        )
    return connection


def check_writable_place(path: Path) -> None:
    """Refuse a directory in which a lock doesn't keep out a writer on another machine."""
    mount = network_mount(path)
    if mount is not None and (reason := mount.without_locks) is not None:
        raise RunError(
            f"{path} is on a network file system ({mount.kind} at {mount.point}) where two machines could write one "
            f"run at once: {reason}. Certify on a local disk and copy the finished run, or its shards (--shard), there"
        )


def _connect(address: str, held: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=10.0, isolation_level=None)
    held.callback(connection.close)
    return connection


def _connected_to_read(path: Path, held: ExitStack) -> sqlite3.Connection:
    """Reading adds no file to the directory, which may belong to another user.

    A write-ahead file without its index was left by a process that is gone, and is read in a copy, as is one on a
    network; a file that is to have one and hasn't is read as it is. So is a file on a network that no writer has a
    journal beside: no lock is asked for there. If one is begun meanwhile, the checksums tell.
    """
    wal, index, rollback = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    remote = network_mount(path) is not None
    if wal.exists() and (remote or not (index.exists() and os.access(path.parent, os.W_OK))):
        return _connected_to_copy(path, wal, held)
    if not wal.exists() and (_wants_write_ahead_file(path) or (remote and not rollback.exists())):
        return _connect(f"{path.as_uri()}?mode=ro&immutable=1", held)
    connection = _connect(f"{path.as_uri()}?mode=ro", held)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # What a killed writer left half done is rolled back, which a reader does in a copy.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) or not rollback.exists():
            raise
        return _connected_to_copy(path, rollback, held)
    return connection


def _connected_to_copy(path: Path, companion: Path, held: ExitStack) -> sqlite3.Connection:
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
    for one in (path, companion):
        shutil.copyfile(one, folder / one.name, follow_symlinks=False)
    return _connect(f"{(folder / path.name).as_uri()}?mode=rw", held)


def _wants_write_ahead_file(path: Path) -> bool:
    """Whether the file's header says that it is in write-ahead mode."""
    with path.open("rb") as file:
        file.seek(18, os.SEEK_SET)
        return file.read(2) == b"\x02\x02"


def prepare_for_writing(path: Path, connection: sqlite3.Connection) -> None:
    """Check the file before anything is added to it; from then on what is committed is on disk.

    On a network file system by a rollback journal, which needs no shared memory, and the lock is kept to the end.
    """
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    mode = "WAL" if network_mount(path) is None else "DELETE"
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("PRAGMA synchronous = FULL")


def _fold_in(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # a reader is looking: the write-ahead file stays, and is valid
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is read inside is of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


class Place:
    """Which files a journal is written to, by device and number: a directory that is taken away is noticed."""

    def __init__(self, path: Path) -> None:
        wal = path.with_name(f"{path.name}-wal")
        self._folder = path.parent
        self._files = [path.parent, path, *([wal] if wal.exists() else [])]  # some file systems allow none
        self._found = self._identity()

    def _identity(self) -> list[tuple[int, int]]:
        found = [one.stat() for one in self._files]
        return [(one.st_dev, one.st_ino) for one in found]

    def check(self) -> None:
        """Refuse at once to write where what is written would be lost."""
        try:
            same = self._identity() == self._found
        except OSError:
            same = False
        if not same:
            raise RunError(
                f"{self._folder} was removed, renamed or replaced while it was written to: what it held is not "
                "added to any more; put it back, or choose another --out, and give the same command again"
            )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in the user's words."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise RunError(f"{path}: the input is in the journal already ({error})") from None
    except SQLITE_ERRORS as error:
        kind = DamagedJournalError if _is_damage(error) else RunError
        raise kind(f"{path}: {_explanation(error)}") from None
    except UNREADABLE as error:
        raise RunError(f"{path}: a record is damaged ({error}); restore the file") from None
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}") from None


def _explanation(error: Exception) -> str:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _NO_LOCKS:
        return f"this file system refuses locks ({text}): keep the run on a local disk, and copy it when it is finished"
    code &= 0xFF
    if code == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR:
        return f"{text}: free some space and give the same command again; what was journalled is safe"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process is certifying into this run; wait for it or choose another --out"
    if _is_damage(error):
        return f"the journal is damaged ({text}); {REMEDY}; or restore it from a copy"
    return text


def _is_damage(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or not code
