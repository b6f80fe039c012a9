"""Store: the interface between a memory and its database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from smoothcert.databases import split_address
from smoothcert.errors import InvalidValueError
from smoothcert.region_memory.chain import Head, Row
from smoothcert.region_memory.errors import IncompleteMemoryError
from smoothcert.region_memory.statement import MemoryStatement
from smoothcert.registry import Registry

_BATCH = 256


class Store(ABC):
    """An append-only table of rows and its head, in tables ``records`` and ``head`` of an SQL database.

    What :meth:`head` and :meth:`rows` show outside :meth:`exclusive` is committed and durable. Every failure is a
    StoreError, after which either the whole transaction is stored or nothing of it.
    """

    statement: MemoryStatement
    """What the store was made for."""
    inside = False
    """Whether this process is inside :meth:`exclusive`."""

    @classmethod
    @abstractmethod
    def takes(cls, address: str) -> bool:
        """Whether an address is one of this kind; no two kinds take the same."""

    @classmethod  # noqa: B027 - most kinds need nothing
    def check_installed(cls) -> None:
        """Refuse, with the command that installs it, where a package that it needs is missing."""

    @classmethod
    @abstractmethod
    def at(cls, address: str, statement: MemoryStatement, known: Head | None) -> Store:
        """Open the store there, or make it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """One serialised transaction: no other process is in its own; sees all that was committed before.

        Left normally, everything appended is durable. Left by an exception, nothing is stored.
        """

    @abstractmethod
    def query(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What the database answers, its errors in the operator's words.

        ``{records}`` and ``{head}`` stand for the tables, ``%s`` for a parameter.
        """

    @abstractmethod
    def fetch(self, ids: Sequence[int]) -> list[Row]:
        """The rows with these ids that exist, in order of id."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def head(self) -> Head:
        """The head as it is now."""
        found = self.query("SELECT count, hash FROM {head}")
        if not found:
            raise IncompleteMemoryError(self.name, "its head is missing")
        return Head(*found[0])

    def last_id(self) -> int:
        """The largest number of any row, 0 if there is none."""
        return int(self.query("SELECT coalesce(max(id), 0) FROM {records}")[0][0])

    def rows(self, after: int, upto: int) -> Iterator[Row]:
        """The rows with after < id ≤ upto, in order."""
        page = "SELECT id, payload, hash FROM {records} WHERE id > %s AND id <= %s ORDER BY id LIMIT %s"
        while after < upto and (batch := self.query(page, after, upto, _BATCH)):
            yield from (Row(*row) for row in batch)
            after = batch[-1][0]

    def append(self, row: Row) -> None:
        """Add a row and make it the head; only inside :meth:`exclusive`."""
        if not self.inside:
            raise InvalidValueError("rows are appended inside exclusive() only")
        self.query(
            "INSERT INTO {records} (id, payload, hash) VALUES (%s, %s, %s)", row.id, row.payload, row.hash
        )
        self.query("UPDATE {head} SET count = %s, hash = %s", row.id, row.hash)


STORES: Registry[type[Store]] = Registry("store of a region memory", __package__)


def open_store(address: str | Path, statement: MemoryStatement, known: Head | None = None) -> Store:
    """Open a store, or make it: ``postgresql://USER@HOST/DATABASE#SCHEMA``, or the path of an SQLite file.

    A password is best left to PGPASSWORD, ~/.pgpass or a service file; one that is in the address isn't repeated.

    ``known`` is a head noted earlier; only SQLite uses it here, for a file whose witness was lost. Pass it to
    RegionMemory too.
    """
    return store_for(address).at(str(address), statement, known)


def store_for(address: str | Path) -> type[Store]:
    """The kind of store that an address is of; what that needs is installed."""
    text = str(address)
    for name in STORES:
        if STORES[name].takes(text):
            STORES[name].check_installed()
            return STORES[name]
    # An address isn't taken for a path.
    raise InvalidValueError(
        f"a memory is in PostgreSQL or in an SQLite file, got an address of {split_address(text).scheme}://…; write "
        "postgresql://USER@HOST/DATABASE#SCHEMA, or the path of a file"
    )
