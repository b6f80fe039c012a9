"""PostgresStore: one memory for serving processes on several machines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from smoothcert.databases import POSTGRES_SCHEMES, is_address, secrets_of, split_address
from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.smoothing.stores.base import (
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

if TYPE_CHECKING:
    import psycopg

DEFAULT_SCHEMA = "smoothcert_memory"

# Held while a schema is made, because CREATE … IF NOT EXISTS may collide with itself.
_CREATION_LOCK = 0x5343524D

# What the server says at a login, which has no code of its own by then.
_MISSING = re.compile(r"(database|role) .* does not exist")
_REFUSED = re.compile(r"authentication failed|no password supplied")

_ONE_ROW = "only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)"
_MAKING = (
    ("CREATE SCHEMA IF NOT EXISTS {}",),
    (f"CREATE TABLE {{}}.statement ({_ONE_ROW}, text text NOT NULL)",),
    (
        "CREATE TABLE {}.records (id bigint PRIMARY KEY CHECK (id > 0), payload bytea NOT NULL, hash bytea NOT NULL)",
    ),
    # Coordinates hardly compress; trying costs more than it saves.
    ("ALTER TABLE {}.records ALTER COLUMN payload SET STORAGE EXTERNAL",),
    (f"CREATE TABLE {{}}.head ({_ONE_ROW}, count bigint NOT NULL, hash bytea NOT NULL)",),
    ("INSERT INTO {}.statement (text) VALUES (%s)", "text"),
    ("INSERT INTO {}.head (count, hash) VALUES (%s, %s)", "count", "hash"),
)
"""The commands that make a memory's schema, and what of its statement and first head each one takes."""

_SESSION = (
    "SET lock_timeout = '{patience}ms'",
    # A process that hangs inside a transaction must not block all others forever.
    "SET idle_in_transaction_session_timeout = '60s'",
)


@STORES.register("postgres")
class PostgresStore(Store):
    """Check-and-store is one READ COMMITTED transaction that begins by locking the head row (FOR UPDATE).

    Every writer must change that one row, so locking it first orders all of them, and each statement after the lock
    sees everything the earlier ones committed. SERIALIZABLE would do as well, but by failing and repeating transactions
    that always conflict here; an advisory lock only binds clients that use it. A killed client's transaction is
    rolled back by the server and its lock goes with it. A row becomes visible after it is flushed, never before.
    """

    def __init__(
        self, conninfo: str, statement: MemoryStatement, schema: str = DEFAULT_SCHEMA, patience: float = 30.0
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise InvalidValueError(f"a schema is named by lower-case letters, digits and _, got {schema!r}")
        self.statement = statement
        self.schema = schema
        self._patience = patience
        self._database = "PostgreSQL"
        self._process = os.getpid()
        self._driver = _driver()
        self._conninfo = _checked(conninfo)
        self._secrets = secrets_of(conninfo)
        self._connection: psycopg.Connection[Any] | None = None
        try:
            with self._explained():
                self._create(self._connected())
        except BaseException:
            self.close()
            raise

    @classmethod
    def takes(cls, address: str) -> bool:
        """``postgresql://…``, or what libpq takes."""
        known = "://" not in address or split_address(address).scheme in POSTGRES_SCHEMES
        return is_address(address) and known

    @classmethod
    def check_installed(cls) -> None:
        """It needs psycopg."""
        _driver()

    @classmethod
    def at(cls, address: str, statement: MemoryStatement, known: Head | None) -> Self:  # noqa: ARG003 - SQLite's
        """The schema that stands behind a #."""
        if "://" not in address:
            return cls(address, statement)
        place = address.partition("://")[2].partition("#")[0]
        return cls(f"postgresql://{place}", statement, split_address(address).fragment or DEFAULT_SCHEMA)

    @property
    def name(self) -> str:
        """Database and schema, without host or password."""
        return f"memory {self.schema!r} in {self._database}"

    def _connected(self) -> psycopg.Connection[Any]:
        """The connection, made anew if the server was gone; the caller's chain tells if it is the same memory."""
        if os.getpid() != self._process:
            raise StoreError(f"{self.name}: a store doesn't survive a fork; open it again in the new process")
        if self._connection is None or self._connection.closed:
            if self.inside:
                raise StoreError(f"{self.name}: the connection was lost; ask again: {NOTHING_LOST}")
            connection = self._driver.connect(self._conninfo, autocommit=True)
            self._connection = connection
            self._database = f"PostgreSQL database {connection.info.dbname!r}"
            connection.isolation_level = self._driver.IsolationLevel.READ_COMMITTED
            for command in _SESSION:
                connection.execute(command.format(patience=int(self._patience * 1000)))
            self._check_durability(connection)
        return self._connection

    def _check_durability(self, connection: psycopg.Connection[Any]) -> None:
        if _value(connection, "SELECT pg_is_in_recovery()"):
            raise StoreError(f"{self.name}: the server is a standby and may lag; connect to the primary")
        if _value(connection, "SHOW fsync") != "on":
            raise StoreError(f"{self.name}: the server has fsync off and may lose answers; set fsync = on")
        if _value(connection, "SHOW synchronous_commit") in ("off", "local"):
            connection.execute("SET synchronous_commit = on")

    def _create(self, connection: psycopg.Connection[Any]) -> None:
        start = genesis(self.statement)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
            made = _value(connection, "SELECT to_regclass(%s)", f"{self.schema}.statement")
            if made is None:
                for command, *values in _MAKING:
                    given = {"text": self.statement.text(), "count": start.count, "hash": start.hash}
                    connection.execute(command.format(self.schema), [given[name] for name in values] or None)
        text = _value(connection, f"SELECT text FROM {self.schema}.statement")
        check_statement(self.name, self.statement, text)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One writing transaction, serialised with those of every other process (see Store)."""
        with self._explained():
            connection = self._connected()
            try:
                with connection.transaction():
                    self.inside = True
                    connection.execute(f"SELECT count FROM {self.schema}.head FOR UPDATE")
                    yield
            finally:
                self.inside = False

    def fetch(self, ids: Sequence[int]) -> list[Row]:
        """The rows with these ids that exist."""
        query = "SELECT id, payload, hash FROM {records} WHERE id = ANY(%s) ORDER BY id"
        return [Row(*row) for row in self.query(query, list(ids))]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def query(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        """As the server answers, in binary."""
        text = text.format(records=f"{self.schema}.records", head=f"{self.schema}.head")
        with self._explained(), self._connected().cursor(binary=True) as cursor:
            cursor.execute(text, parameters)
            return cursor.fetchall() if cursor.description else []

    def _line(self, error: Exception) -> str:
        line = str(error).strip().partition("\n")[0]
        for secret in self._secrets:
            line = line.replace(secret, "…")
        return line

    @contextmanager
    def _explained(self) -> Iterator[None]:
        errors = self._driver.errors
        try:
            yield
        except errors.LockNotAvailable as error:
            raise StoreError(
                f"{self.name}: another process held the store for {self._patience:g} s; ask again: {NOTHING_LOST}"
            ) from error
        except errors.DiskFull as error:
            raise StoreError(
                f"{self.name}: the server's disk is full; free some, ask again: {NOTHING_LOST}"
            ) from error
        except (errors.UniqueViolation, errors.DataCorrupted, errors.UndefinedTable) as error:
            raise IncompleteMemoryError(self.name, f"its tables are damaged ({self._line(error)})") from error
        except self._driver.OperationalError as error:
            line = self._line(error)
            if _MISSING.search(line):
                raise StoreError(
                    f"{self.name}: {line}. A memory makes its schema, but no database and no user: make it "
                    "(createdb, createuser), or name another"
                ) from error
            if _REFUSED.search(line):
                raise StoreError(
                    f"{self.name}: the server refuses the login ({line}); check user and password (PGPASSWORD, "
                    "~/.pgpass)"
                ) from error
            raise StoreError(
                f"{self.name}: the server can't be reached or gave up ({self._line(error)}); ask again when it is "
                f"back: {NOTHING_LOST}"
            ) from error
        except self._driver.Error as error:
            raise StoreError(f"{self.name}: {self._line(error)}; {NOTHING_LOST}") from error


def _driver() -> Any:
    return require("psycopg", "a memory in PostgreSQL")


def _value(connection: psycopg.Connection[Any], query: str, *parameters: object) -> Any:
    found = connection.execute(query, parameters).fetchone()
    return None if found is None else found[0]


def _checked(conninfo: str) -> str:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        raise InvalidValueError(
            "the database's address can't be read: write postgresql://USER@HOST/DATABASE#SCHEMA, with special "
            "characters as %XX, and the password in PGPASSWORD or ~/.pgpass"
        ) from None
    return conninfo
