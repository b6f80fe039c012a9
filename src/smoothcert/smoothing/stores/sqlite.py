"""SqliteStore: one file, one writer at a time, any number of processes on one machine; its head once more beside it."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from smoothcert import databases
from smoothcert.errors import DataError
from smoothcert.files import lock, open_own
from smoothcert.smoothing.stores.base import (
    HASH_BYTES,
    NOTHING_LOST,
    STORES,
    Head,
    IncompleteMemoryError,
    MemoryStatement,
    Row,
    Store,
    StoreError,
    check_statement,
    genesis,
)

_APPLICATION = 0x5343524D  # "SCRM", in the file's header: tells a memory from any other database

_TABLES = {
    "statement": "CREATE TABLE statement (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), text TEXT NOT NULL)",
    "records": "CREATE TABLE records (id INTEGER PRIMARY KEY CHECK (id > 0), payload BLOB NOT NULL, "
    "hash BLOB NOT NULL)",
    "head": "CREATE TABLE head (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), count INTEGER NOT NULL, "
    "hash BLOB NOT NULL)",
}


@STORES.register("sqlite")
class SqliteStore(Store):
    """Write-ahead log, flushed at every commit, before it becomes visible; BEGIN IMMEDIATE keeps out other writers.

    The file must be on a local disk: the write-ahead log needs memory shared by all processes, and a lock that another
    machine doesn't see would let two processes give answers that contradict each other.
    """

    def __init__(
        self, path: Path, statement: MemoryStatement, known: Head | None = None, patience: float = 30.0
    ) -> None:
        self.path = path
        self.statement = statement
        self._witness = Witness(path)
        self._patience = patience
        self._appended: Head | None = None
        self._process = os.getpid()
        if (mount := databases.network_mount(path)) is not None:
            raise StoreError(
                f"{path} is on a network file system ({mount.kind} at {mount.point}), where locks between "
                "machines may fail and two answers could contradict each other; keep the memory on a local disk, or in "
                "PostgreSQL (postgresql://USER@HOST/DATABASE#SCHEMA), which several machines may share"
            )
        try:
            databases.check_plain_files(path, writing=True)
        except DataError as error:
            raise StoreError(str(error)) from None
        with self._explained(), ExitStack() as held:
            self._connection = databases.connect_sqlite(path, held, patience=patience, threads=True)
            self._prepare()
            self._identity = databases.FileIdentity(path)
            self._check_witness(known)
            self._held = held.pop_all()

    @classmethod
    def takes(cls, address: str) -> bool:
        """Any path."""
        return not databases.is_address(address)

    @classmethod
    def at(cls, address: str, statement: MemoryStatement, known: Head | None) -> Self:
        """The file there."""
        return cls(Path(address), statement, known)

    @property
    def name(self) -> str:
        """The file."""
        return str(self.path)

    def _prepare(self) -> None:
        # In this order: a memory that another process finishes making between the two has its mark by the second.
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        if tables and application != _APPLICATION:
            raise StoreError(f"{self.path} is an SQLite file but no region memory; choose another path")
        self._check_schema()
        self._use_write_ahead_log()
        self._connection.execute("PRAGMA synchronous = FULL")
        with databases.transaction(self._connection):
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                self._create()
            self._check_schema()
        stored = self._connection.execute("SELECT text FROM statement").fetchone()
        check_statement(self.name, self.statement, None if stored is None else stored[0])

    def _check_schema(self) -> None:
        """Refuse a file with anything in it that could change what is stored, or hide it: triggers, views."""
        tables: dict[str, Collection[str]] = {name: {text} for name, text in _TABLES.items()}
        if (found := databases.foreign_object(self._connection, tables)) is not None:
            raise IncompleteMemoryError(self.name, f"it holds {found}, which could falsify it")

    def _use_write_ahead_log(self) -> None:
        """SQLite does not wait for its lock here; a few processes that open a new file at once must."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise StoreError(f"{self.path}: no write-ahead log is possible here ({mode}); use a local disk")

    def _create(self) -> None:
        if (witnessed := self._witness.read()) is not None:
            raise IncompleteMemoryError(
                self.name,
                f"the store is empty but {self._witness.path.name} knows of {witnessed.count} records",
            )
        for command in (*_TABLES.values(), f"PRAGMA application_id = {_APPLICATION}"):
            self._connection.execute(command)
        start = genesis(self.statement)
        self._connection.execute("INSERT INTO statement VALUES (1, ?)", (self.statement.text(),))
        self._connection.execute("INSERT INTO head VALUES (1, ?, ?)", (start.count, start.hash))

    def _check_witness(self, known: Head | None) -> None:
        # In this order: the witness is written before the record.
        count = self.head().count
        witnessed = self._witness.read()
        if witnessed is None:
            if known is None and count:
                raise IncompleteMemoryError(
                    self.name,
                    f"it has {count} records but {self._witness.path.name} is missing, as after a plain "
                    "copy of the one file (use backup()), so missing records can't be ruled out; if you "
                    "noted its head elsewhere, give that as known",
                )
            witnessed = known or self.head()
        if not self.holds(witnessed):
            raise IncompleteMemoryError(
                self.name,
                f"it has {self.head().count} records, but its record {witnessed.count} is not the one acknowledged "
                "(was its -wal file lost, or an old copy put in place?)",
            )
        self._witness.advance(witnessed)

    def holds(self, head: Head) -> bool:
        """Whether ``head`` was a head of this chain, going by the hash its row carries."""
        if head.count == 0:
            return head == genesis(self.statement)
        return [row.hash for row in self.fetch([head.count])] == [head.hash]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One writing transaction, serialised with those of every other process (see Store)."""
        with self._explained():
            self._check_same_file()
            try:
                with databases.transaction(self._connection):
                    self._enter()
                    yield
            finally:
                self.inside = False
            if self._appended is not None:
                self._witness.advance(self._appended)

    def _enter(self) -> None:
        self.inside, self._appended = True, None

    def query(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """As the store's one connection answers."""
        text = text.format(records="records", head="head").replace("%s", "?")
        with self._explained():
            self._check_same_file()
            return self._connection.execute(text, parameters).fetchall()

    def fetch(self, ids: Sequence[int]) -> list[Row]:
        """The rows with these ids that exist."""
        query = "SELECT id, payload, hash FROM {records} WHERE id IN (SELECT value FROM json_each(%s)) ORDER BY id"
        return [Row(*row) for row in self.query(query, json.dumps(list(ids)))]

    def append(self, row: Row) -> None:
        """As everywhere; the witness hears of it after the transaction."""
        super().append(row)
        self._appended = Head(row.id, row.hash)

    def backup(self, to: Path) -> Head:
        """Copy the store as it is at this moment, with its witness; others may go on writing meanwhile."""
        if any(os.path.lexists(one) for one in (to, Witness(to).path)):
            raise StoreError(f"{to} exists already; choose a new path for the copy")
        with self._explained(), closing(sqlite3.connect(to, isolation_level=None)) as copy:
            self._connection.backup(copy)
            count, digest = copy.execute("SELECT count, hash FROM head").fetchone()
        head = Head(count, bytes(digest))
        Witness(to).advance(head)
        return head

    def close(self) -> None:
        """Close; the last process to do so folds the write-ahead file in."""
        self._held.close()

    def _check_same_file(self) -> None:
        """Two processes on two files that had one name would not see each other."""
        if os.getpid() != self._process:
            raise StoreError(f"{self.path}: a store doesn't survive a fork; open it again in the new process")
        if not self._identity.is_same():
            raise IncompleteMemoryError(self.name, "the file was moved or replaced while it was in use")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except databases.SQLITE_ERRORS as error:
            raise _explanation(self.name, error) from error


def _explanation(name: str, error: Exception) -> StoreError:
    problem = databases.sqlite_problem(error)
    if problem in ("damaged", "twice"):
        return IncompleteMemoryError(name, f"the file is damaged ({error})")
    words = {
        "full": f"{error}; free some space and ask again: {NOTHING_LOST}",
        "busy": f"another process held the store for too long; ask again: {NOTHING_LOST}",
        "no access": f"{error}; check that folder and file exist and may be written",
        "no locks": f"{error}: this file system refuses locks; keep the memory on a local disk",
    }
    return StoreError(f"{name}: {words.get(problem, error)}")


_CHECK = 8
_SIZE = 8 + HASH_BYTES + _CHECK


class Witness:
    """Only moves forward; its file lock goes with the process."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".head")

    def read(self) -> Head | None:
        """The latest head that was acknowledged, None if nothing was written yet."""
        try:
            with os.fdopen(open_own(self.path, os.O_RDONLY), "rb") as file:
                lock(file.fileno(), shared=True)  # another process may be writing its first head
                content = file.read(_SIZE + 1)
            return self._parse(content) if content else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} can't be read: {error.strerror}") from None

    def advance(self, head: Head) -> None:
        """Write ``head`` unless another process has written a later one."""
        try:
            with os.fdopen(open_own(self.path, os.O_RDWR | os.O_CREAT), "rb+", buffering=0) as file:
                lock(file.fileno())
                before = file.read(_SIZE + 1)
                if not before or self._parse(before).count < head.count:
                    body = head.count.to_bytes(8, "big") + head.hash
                    # One write of less than a sector; the database, not this file, is what survives a power cut.
                    os.pwrite(file.fileno(), body + hashlib.sha256(body).digest()[:_CHECK], 0)
        except OSError as error:
            raise StoreError(f"{self.path} can't be written: {error.strerror}; ask again") from None

    def _parse(self, content: bytes) -> Head:
        body, check = content[:-_CHECK], content[-_CHECK:]
        if len(content) != _SIZE or hashlib.sha256(body).digest()[:_CHECK] != check:
            raise IncompleteMemoryError(
                str(self.path),
                "the witness of the last head is damaged, so missing records can't be ruled out",
            )
        return Head(int.from_bytes(body[:8], "big"), body[8:])
