"""Store: the interface between a memory and its database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from smoothcert.databases import POSTGRES_SCHEMES, is_address, split_address
from smoothcert.errors import InvalidValueError
from smoothcert.region_memory.chain import Head, Row
from smoothcert.region_memory.statement import Statement


class Store(Protocol):
    """An append-only table of rows and its head.

    What :meth:`head` and :meth:`rows` show outside :meth:`exclusive` is committed and durable. Every failure is a
    StoreError, after which either the whole transaction is stored or nothing of it.
    """

    @property
    def statement(self) -> Statement:
        """What the store was made for."""
        ...

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """One serialised transaction: no other process is in its own; sees all that was committed before.

        Left normally, everything appended is durable. Left by an exception, nothing is stored.
        """
        ...

    def head(self) -> Head:
        """The head as it is now."""
        ...

    def last_id(self) -> int:
        """The largest number of any row, 0 if there is none."""
        ...

    def rows(self, after: int, upto: int) -> Iterator[Row]:
        """The rows with after < id ≤ upto, in order."""
        ...

    def fetch(self, ids: Sequence[int]) -> list[Row]:
        """The rows with these ids that exist, in order of id."""
        ...

    def append(self, row: Row) -> None:
        """Add a row and make it the head; only inside :meth:`exclusive`."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def open_store(address: str | Path, statement: Statement, known: Head | None = None) -> Store:
    """Open a store, or make it: ``postgresql://USER@HOST/DATABASE#SCHEMA``, or the path of an SQLite file.

    A password is best left to PGPASSWORD, ~/.pgpass or a service file; one that is in the address isn't repeated.

    ``known`` is a head noted earlier; only SQLite uses it here, for a file whose witness was lost. Pass it to
    RegionMemory too.
    """
    text = str(address)
    if is_address(text):
        from smoothcert.region_memory.postgres import DEFAULT_SCHEMA, PostgresStore

        conninfo, schema = _conninfo(text)
        return PostgresStore(conninfo, statement, schema or DEFAULT_SCHEMA)
    from smoothcert.region_memory.sqlite import SqliteStore

    return SqliteStore(Path(address), statement, known)


def _conninfo(address: str) -> tuple[str, str]:
    """What libpq takes, and the schema; another server than PostgreSQL is refused, and not taken for a path."""
    if "://" not in address:
        return address, ""
    parts = split_address(address)
    if parts.scheme not in POSTGRES_SCHEMES:
        raise InvalidValueError(
            f"a memory is in PostgreSQL or in an SQLite file, got an address of {parts.scheme}://…; write "
            "postgresql://USER@HOST/DATABASE#SCHEMA, or the path of a file"
        )
    place = address.partition("://")[2].partition("#")[0]
    return f"postgresql://{place}", parts.fragment
