"""Databases that others may have made: addresses without credentials, SQLite files whose schema can do nothing."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from smoothcert.errors import DataError, InvalidValueError

POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "postgres+psycopg")

COMPANIONS = ("-wal", "-shm", "-journal")
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: SQLite quotes its schema in messages, which Python then fails to decode."""
_LARGEST_VALUE = 2**26  # bytes of a text or blob: more than any record has
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_KEYWORDS = re.compile(
    r"\b(?:password|passfile|sslpassword|user|host|hostaddr|dbname|service)\s*=", re.IGNORECASE
)


def is_address(text: str) -> bool:
    """Whether it is meant for a server and not a path: ``scheme://…``, or libpq's ``host=… password=…``."""
    return bool(_ADDRESS.match(text) or (_KEYWORDS.search(text) and not Path(text).exists()))


def public_address(text: str) -> str:
    """An address as it may be shown and stored: scheme, host, port, database and schema, nothing that lets one in.

    Paths come back as they are.
    """
    if not is_address(text):
        return text
    if not _ADDRESS.match(text):
        return "postgresql://…"
    parts = split_address(text)
    try:
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        port = ""
    schema = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}{schema}"


def split_address(text: str) -> SplitResult:
    """Its parts; an address that has none is refused without being repeated, since it may hold a password."""
    try:
        parts = urlsplit(text)
        _ = parts.hostname
        return parts
    except ValueError as error:
        reason = str(error).partition(":")[0]
        raise InvalidValueError(
            f"the database's address can't be read ({reason}): write postgresql://USER@HOST/DATABASE#SCHEMA, with "
            "special characters as %XX, and the password in PGPASSWORD or ~/.pgpass"
        ) from None


def secrets_of(text: str) -> list[str]:
    """What must not be repeated of an address: its password, as written and as meant, and all its parameters."""
    if not _ADDRESS.match(text):
        return [value for value in re.findall(r"=\s*('(?:[^'\\]|\\.)*'|\S+)", text) if len(value) > 2]
    parts = split_address(text)
    found = [parts.password, parts.query, *(pair.partition("=")[2] for pair in parts.query.split("&"))]
    given = [one for one in found if one]
    return sorted({*given, *map(unquote, given)}, key=len, reverse=True)


def check_plain_files(path: Path, writing: bool) -> None:
    """Refuse an SQLite file that is, or whose companions are, links or no plain files: SQLite would follow them.

    For ``writing``, neither may it have a second name, under which it would be altered too.
    """
    for name in (path.name, *(path.name + companion for companion in COMPANIONS)):
        one = path.with_name(name)
        try:
            found = os.lstat(one)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{one} can't be read: {error.strerror}") from None
        if stat.S_ISLNK(found.st_mode):
            raise DataError(f"{one} is a link and not followed; name the file itself, or copy it here")
        if not stat.S_ISREG(found.st_mode):
            raise DataError(f"{one} is no plain file")
        if writing and found.st_nlink > 1:
            raise DataError(
                f"{one} has another name elsewhere (a hard link): what is added would go there; copy it"
            )


def distrust(connection: sqlite3.Connection) -> None:
    """Take from the schema of a file all that it could do by itself; call it before any other command."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    if configure := getattr(
        connection, "setconfig", None
    ):  # from Python 3.12 on; before, the schema's check stands alone
        for name, on in (("DEFENSIVE", True), ("ENABLE_TRIGGER", False), ("ENABLE_VIEW", False)):
            configure(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), on)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is done inside, or none of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has ended it already; the cause is what counts
            connection.execute("ROLLBACK")
        raise


def foreign_object(connection: sqlite3.Connection, tables: dict[str, Collection[str]]) -> str | None:
    """What the schema holds besides ``tables``, each with the texts it may have been made with, to the letter.

    None if there is nothing: no trigger, view, index, virtual table, default or check of unknown origin.
    """
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid"):
        if kind != "table":
            return f"the {kind} {name!r}"
        if name not in tables:
            return f"the table {name!r}"
        if text not in tables[name]:
            return f"a table {name!r} of another form"
    return None
