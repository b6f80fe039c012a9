"""SqliteStore: one file, one writer at a time, any number of processes on one machine."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from smoothcert.databases import (
    SQLITE_ERRORS,
    check_plain_files,
    distrust,
    foreign_object,
    is_address,
    transaction,
)
from smoothcert.errors import DataError
from smoothcert.mounts import network_mount
from smoothcert.region_memory.chain import Head, Row, genesis
from smoothcert.region_memory.errors import NOTHING_LOST, IncompleteMemoryError, StoreError
from smoothcert.region_memory.statement import MemoryStatement, check_statement
from smoothcert.region_memory.stores.base import STORES, Store
from smoothcert.region_memory.stores.witness import Witness

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
        self._inode: int | None = None
        self._check_local()
        try:
            check_plain_files(path, writing=True)
        except DataError as error:
            raise StoreError(str(error)) from None
        with self._explained():
            self._connection = sqlite3.connect(
                path, timeout=patience, isolation_level=None, check_same_thread=False
            )
            try:
                distrust(self._connection)
                self._prepare()
                self._inode = path.stat().st_ino
                self._check_witness(known)
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def takes(cls, address: str) -> bool:
        """Any path."""
        return not is_address(address)

    @classmethod
    def at(cls, address: str, statement: MemoryStatement, known: Head | None) -> Self:
        """The file there."""
        return cls(Path(address), statement, known)

    @property
    def name(self) -> str:
        """The file."""
        return str(self.path)

    def _check_local(self) -> None:
        if (mount := network_mount(self.path)) is not None:
            raise StoreError(
                f"{self.path} is on a network file system ({mount.kind} at {mount.point}), where locks between "
                "machines may fail and two answers could contradict each other; keep the memory on a local disk, or in "
                "PostgreSQL (postgresql://USER@HOST/DATABASE#SCHEMA), which several machines may share"
            )

    def _prepare(self) -> None:
        # In this order: a memory that another process finishes making between the two has its mark by the second.
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        if tables and application != _APPLICATION:
            raise StoreError(f"{self.path} is an SQLite file but no region memory; choose another path")
        self._check_schema()
        self._use_write_ahead_log()
        self._connection.execute("PRAGMA synchronous = FULL")
        with transaction(self._connection):
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                self._create()
            self._check_schema()
        stored = self._connection.execute("SELECT text FROM statement").fetchone()
        check_statement(self.name, self.statement, None if stored is None else stored[0])

    def _check_schema(self) -> None:
        """Refuse a file with anything in it that could change what is stored, or hide it: triggers, views."""
        tables: dict[str, Collection[str]] = {name: {text} for name, text in _TABLES.items()}
        if (found := foreign_object(self._connection, tables)) is not None:
            raise IncompleteMemoryError(
                self.name, f"it holds {found}, which no memory has and which could falsify it"
            )

    def _use_write_ahead_log(self) -> None:
        """SQLite doesn't wait for its turn here; a few processes that open a new file at once must."""
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
                with transaction(self._connection):
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
        self._connection.close()

    def _check_same_file(self) -> None:
        """Two processes on two files that had one name would not see each other."""
        if os.getpid() != self._process:
            raise StoreError(f"{self.path}: a store doesn't survive a fork; open it again in the new process")
        try:
            same = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise IncompleteMemoryError(self.name, "the file was moved or replaced while it was in use")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate SQLite's errors for the operator."""
        try:
            yield
        except SQLITE_ERRORS as error:
            raise _explanation(self.name, error) from error


def _explanation(name: str, error: Exception) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreError(f"{name}: {error}; free some space and ask again: {NOTHING_LOST}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{name}: another process held the store for too long; ask again: {NOTHING_LOST}")
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
    undecodable = not code and isinstance(error, sqlite3.OperationalError | UnicodeDecodeError)
    if code in damage or undecodable:
        return IncompleteMemoryError(name, f"the file is damaged ({error})")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(f"{name}: {error}; check that folder and file exist and may be written")
    return StoreError(f"{name}: {error}")
