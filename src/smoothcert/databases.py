"""Databases that others may have made: SQLite files whose schema can do nothing, addresses without credentials.

Which file system a file is on decides how it may be opened: SQLite's write-ahead mode needs memory that all processes
share, which a file system of another machine can't give; its rollback journal needs nothing but locks and files that
are on disk when that is said.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from smoothcert.errors import DataError, InvalidValueError

POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "postgres+psycopg")

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
    secrets = [parts.password, parts.query, *(pair.partition("=")[2] for pair in parts.query.split("&"))]
    given = [secret for secret in secrets if secret]
    return sorted({*given, *map(unquote, given)}, key=len, reverse=True)


COMPANIONS = ("-wal", "-shm", "-journal")
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises: SQLite quotes its schema in messages, which Python then fails to decode."""
_LARGEST_VALUE = 2**26  # bytes of a text or blob: more than any record has
_NO_LOCKS = (
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_UNLOCK,
    sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
)
SqliteProblem = Literal["no locks", "full", "busy", "damaged", "no access", "twice", "unknown"]


def sqlite_problem(error: Exception) -> SqliteProblem:
    """What one of :data:`SQLITE_ERRORS` means to a user."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _NO_LOCKS:
        return "no locks"
    if not code and not isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return "damaged"
    problems: dict[int, SqliteProblem] = {
        sqlite3.SQLITE_FULL: "full",
        sqlite3.SQLITE_IOERR: "full",
        sqlite3.SQLITE_BUSY: "busy",
        sqlite3.SQLITE_LOCKED: "busy",
        sqlite3.SQLITE_CORRUPT: "damaged",
        sqlite3.SQLITE_NOTADB: "damaged",
        sqlite3.SQLITE_CANTOPEN: "no access",
        sqlite3.SQLITE_READONLY: "no access",
        sqlite3.SQLITE_PERM: "no access",
        sqlite3.SQLITE_CONSTRAINT: "twice",
    }
    return problems.get(code & 0xFF, "unknown")


def check_plain_files(path: Path, writing: bool) -> None:
    """Refuse an SQLite file that is, or whose companions are, links or not regular files: SQLite would follow them.

    For ``writing``, neither may it have a second name, under which it would also be altered.
    """
    for file in (path, *(path.with_name(path.name + companion) for companion in COMPANIONS)):
        try:
            status = os.lstat(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{file} can't be read: {error.strerror}") from None
        if stat.S_ISLNK(status.st_mode):
            raise DataError(f"{file} is a link and not followed; name the file itself, or copy it here")
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{file} is not a regular file")
        if writing and status.st_nlink > 1:
            raise DataError(f"{file} has another name (a hard link): what is added would go there; copy it")


def connect_sqlite(
    path: Path, held: ExitStack, mode: str = "mode=rwc", patience: float = 10.0, threads: bool = False
) -> sqlite3.Connection:
    """Connect to a file, from whose schema all is taken that it could do by itself; ``held`` closes it."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=not threads,
    )
    held.callback(connection.close)
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    # From Python 3.12 on; before, the schema's check stands alone.
    if configure := getattr(connection, "setconfig", None):
        for name, on in (("DEFENSIVE", True), ("ENABLE_TRIGGER", False), ("ENABLE_VIEW", False)):
            configure(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), on)
    return connection


def connect_to_read(path: Path, held: ExitStack) -> sqlite3.Connection:
    """Connect without adding a file to the directory, which may belong to another user.

    A write-ahead file without its index was left by a process that is gone, and is read in a copy, as is one on a
    network; a file that is to have one and hasn't is read as it is. So is a file on a network that no writer has a
    journal beside: no lock is asked for there.
    """
    wal, index, rollback = (path.with_name(path.name + end) for end in COMPANIONS)
    remote = network_mount(path) is not None
    if wal.exists() and (remote or not (index.exists() and os.access(path.parent, os.W_OK))):
        return _connect_to_copy(path, wal, held)
    if not wal.exists() and (_wants_write_ahead_file(path) or (remote and not rollback.exists())):
        return connect_sqlite(path, held, "mode=ro&immutable=1")
    connection = connect_sqlite(path, held, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # What a killed writer left half done is rolled back, which a reader does in a copy.
        if sqlite_problem(error) != "no access" or not rollback.exists():
            raise
        return _connect_to_copy(path, rollback, held)
    return connection


def _connect_to_copy(path: Path, companion: Path, held: ExitStack) -> sqlite3.Connection:
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
    for file in (path, companion):
        needed, free = file.stat().st_size, shutil.disk_usage(folder).free
        if needed > free:
            raise DataError(
                f"{file} has to be copied to be read, and {folder.parent} has no room for its {needed} bytes: set "
                "TMPDIR to another disk"
            )
        shutil.copyfile(file, folder / file.name, follow_symlinks=False)
    return connect_sqlite(folder / path.name, held, "mode=rw")


def _wants_write_ahead_file(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(18, os.SEEK_SET)
        return file.read(2) == b"\x02\x02"


class FileIdentity:
    """Files by device and number, so that one that is moved, removed or replaced while it is in use is noticed."""

    def __init__(self, *paths: Path) -> None:
        self._paths, self._known = paths, _identities(paths)

    def is_same(self) -> bool:
        """Whether all of them are where they were."""
        try:
            return _identities(self._paths) == self._known
        except OSError:
            return False


def _identities(paths: Collection[Path]) -> list[tuple[int, int]]:
    return [(status.st_dev, status.st_ino) for status in (path.stat() for path in paths)]


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


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is read inside is of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


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


MOUNTS = Path("/proc/self/mountinfo")
"""Linux's own list of mounts. Elsewhere there is none, and nothing is known."""

_NETWORK = re.compile(
    "9p|acfs|beegfs|ceph|cephfs|cifs|gfs|gfs2|glusterfs|gpfs|lustre|nfs|nfs4|ocfs2|orangefs|panfs|pvfs2|smb2|smb3|smbfs"
    "|vboxsf|virtiofs|wekafs"
)
_LOCKLESS = re.compile(
    r"afs|coda|davfs|ncpfs|fuse\.(blobfuse|blobfuse2|davfs2|gcsfuse|geesefs|goofys|mountpoint-s3|rclone|s3fs|sshfs)"
)
"""Locks don't reach other machines, or a file can't be altered in its middle."""
_LOCAL_LOCKS = re.compile(r"nolock|nobrl|localflock|local_lock=(?!none$).*")
"""Options of a mount that keep its locks on one machine."""
_LOCAL_FUSE = re.compile(r"fuse\.(mergerfs|ntfs-3g|fuse-overlayfs|gocryptfs|encfs)")


@dataclass(frozen=True)
class Mount:
    """A file system where it is mounted."""

    point: Path
    kind: str
    """As the kernel names it: ext4, nfs4, fuse.sshfs."""
    options: tuple[str, ...] = ()

    @property
    def is_network(self) -> bool:
        """Whether other machines may also have it; a FUSE file system that isn't known is taken for one."""
        if _NETWORK.fullmatch(self.kind) or _LOCKLESS.fullmatch(self.kind):
            return True
        return self.kind.startswith("fuse.") and not _LOCAL_FUSE.fullmatch(self.kind)

    @property
    def without_locks(self) -> str | None:
        """Why a lock on it wouldn't keep another machine out, in words; None where nothing says so."""
        if _LOCKLESS.fullmatch(self.kind):
            return f"{self.kind} has no locks that other machines see"
        if self.is_network:
            for option in self.options:
                if _LOCAL_LOCKS.fullmatch(option):
                    return f"it is mounted with {option}, so that other machines don't see its locks"
        return None


def mount_of(path: Path) -> Mount | None:
    """The mount that a path, made already or not, is on; None where the operating system doesn't say."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real = Path(os.path.realpath(path))  # which also takes links that lead in circles
    mounts = [mount for mount in map(_parsed_mount, lines) if mount and real.is_relative_to(mount.point)]
    # Of two at one point the later one is seen.
    return max(reversed(mounts), key=lambda mount: len(mount.point.parts), default=None)


def network_mount(path: Path) -> Mount | None:
    """The mount of a path, if other machines may have it."""
    mount = mount_of(path)
    return mount if mount is not None and mount.is_network else None


def _parsed_mount(line: str) -> Mount | None:
    """A line: number, parent, device, root, point, options, tags …, a dash, kind, source, the file system's options."""
    before, _, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if len(head) < 6 or not tail[0]:
        return None
    options = tail[2].split(",") if len(tail) > 2 else []
    # Spaces and the like are written as three octal digits.
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), head[4])
    return Mount(Path(point), tail[0], (*head[5].split(","), *options))
