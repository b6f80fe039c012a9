"""Files of unknown origin, read raw: within limits, no link followed, nothing written, no meaning given to a value."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import shutil
import sqlite3
import stat
import struct
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MOST_TEXT = 2**26
"""Bytes of a statement or a vector; lists of lines may have eight times as many."""
JOURNAL = "journal.sqlite"

_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in _FLAGS)
_LONGEST_NUMBER = 100  # characters; a seed may have 39 digits
_LONGEST_HEADER = 10_000
_MOST_SCALES = 2**23
_TYPES = dict(zip(("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"), "efdbhiqBHIQ"))
_LARGEST_VALUE = 2**26  # bytes of a text or blob: more than any record has
_TRIES, _PAUSE = 20, 0.05
# At the start of a write-ahead file or rollback journal: those of another transaction differ.
_MOMENT_BYTES = 32

_FIRST = """CREATE TABLE records (
    "index" INTEGER PRIMARY KEY, label INTEGER NOT NULL, predicted INTEGER NOT NULL, abstained INTEGER NOT NULL,
    radius REAL NOT NULL, sigma REAL NOT NULL, seconds REAL NOT NULL, selection TEXT, estimation TEXT"""
_ADDED = ("volume_radius REAL", "stopped TEXT", "checksum TEXT")
_BASES = (f"{_FIRST}, base INTEGER", f"{_FIRST},\n    base INTEGER")
TABLES: dict[str, Collection[str]] = {
    "records": {f"{_FIRST})"}
    | {", ".join((base, *_ADDED[:count])) + ")" for base in _BASES for count in range(len(_ADDED) + 1)},
    "totals": {
        "CREATE TABLE totals (records INTEGER NOT NULL, checksums TEXT NOT NULL, statement TEXT NOT NULL)"
    },
}
"""Every text that smoothcert has made a journal's tables with. Any other could compute forever, or falsify."""


class RunError(Exception):
    """A run that can't be read: which file, why, and what to do."""


class UnreadableError(ValueError):
    """A value that isn't of the kind it must be."""


@contextmanager
def opened_file(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read. Anything else is a RunError: a pipe would keep us waiting, a device never end.

    So is a link: inside a directory of unknown origin, it would choose the file.
    """
    try:
        if path.is_symlink():
            raise RunError(f"{path} can't be read: it is a link, and not followed")
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # first: of a folder, Python's own error would name the descriptor's number
        raise RunError(f"{path} can't be read: it is not a regular file but a folder, pipe or device")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_file(path: Path, most: int = MOST_TEXT) -> bytes:
    """A whole file of at most ``most`` bytes; its size is looked at before memory is taken."""
    with opened_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_size(path, size, most)
        content = file.read(size + 1)
        _check_size(path, len(content), most)
        return content


def _check_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise RunError(f"{path} has {size} bytes, where {most} are the most: it isn't what it is taken for")


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a file's lines, none if there is no file; what was cut off or damaged is left out."""
    with suppress(FileNotFoundError), opened_file(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, 8 * MOST_TEXT)
        for line in file:
            with suppress(ValueError):
                fields = parse_json(line.decode(errors="replace"))
                if isinstance(fields, dict) and is_intact(fields):
                    yield fields


def read_vector(path: Path) -> tuple[tuple[float, ...], str]:
    """The numbers of a .npy file and the SHA-256 of their shape and values; UnreadableError where it holds none."""
    try:
        shape, values = _parse_npy(read_file(path))
    except (FileNotFoundError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error
        raise UnreadableError(f"{path.name} can't be read ({reason})") from None
    digest = hashlib.sha256(repr(shape).encode())
    digest.update(struct.pack(f"<{len(values)}d", *values))
    return values, digest.hexdigest()


def parse_json(text: str | bytes) -> Any:
    """JSON from a file. ValueError for all that isn't: nesting too deep to parse and endless numbers included.

    So is a name given twice: readers differ in which of the two they take.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, **_NUMBERS)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def integer(fields: dict[str, Any], name: str) -> int:
    """A whole number; true and 1.0 aren't accepted."""
    value = fields.get(name)
    if type(value) is not int:
        raise UnreadableError(f"{name} = {value!r}, which is not a whole number")
    return value


def number(fields: dict[str, Any], name: str) -> float:
    """A number, infinity included."""
    value = fields.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        try:
            return float(value)
        except OverflowError:
            pass
    raise UnreadableError(f"{name} = {value!r}, which is not a number")


def size(fields: dict[str, Any], name: str) -> float:
    """A number that is positive and finite."""
    value = number(fields, name)
    if not (math.isfinite(value) and value > 0):
        raise UnreadableError(f"{name} = {value!r}, which isn't positive and finite")
    return value


def checksum(value: object) -> str:
    """Of plain values. Checksums detect damage, not forgery: anyone can compute them."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def is_intact(fields: dict[str, Any]) -> bool:
    """Whether an object has the checksum that it states; earlier versions stated none."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return "checksum" not in fields or fields["checksum"] == checksum(rest)


@dataclass(frozen=True)
class Journal:
    """A run's journal at one moment.

    ``totals`` say how many records were written, the sum of their checksums, and that of the statement they were made
    with; None where the journal doesn't say, as those of earlier versions. ``rows`` are in the order of their indices.
    """

    count: int
    totals: tuple[int, int, str] | None
    rows: Iterator[dict[str, Any]]


@contextmanager
def opened_journal(directory: Path) -> Iterator[Journal]:
    """The journal of a run; RunError where there is none, or one that is damaged, a link, or not of our making."""
    with opened_database(directory / JOURNAL, TABLES) as connection:
        yield _journal(connection)


@contextmanager
def opened_database(path: Path, tables: Mapping[str, Collection[str]]) -> Iterator[sqlite3.Connection]:
    """An SQLite file that holds ``tables`` alone, each made with one of these texts, to the letter.

    So it can do nothing by itself: no trigger, view, index, default or check of unknown origin. Neither the file nor
    what lies beside it changes. RunError where it can't be read.
    """
    try:
        with ExitStack() as held:
            connection = sqlite3.connect(_resting(path, held), uri=True)
            held.callback(connection.close)
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
                connection.execute(f"PRAGMA {setting}")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
            # From Python 3.12 on; before, the tables' texts stand alone.
            if configure := getattr(connection, "setconfig", None):
                for name, on in (("DEFENSIVE", True), ("ENABLE_TRIGGER", False), ("ENABLE_VIEW", False)):
                    configure(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), on)
            schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid")
            for kind, name, text in schema:
                if kind != "table" or text not in tables.get(name, ()):
                    form = " of another form" if kind == "table" and name in tables else ""
                    raise RunError(
                        f"{path} is not a file that smoothcert made: it holds the {kind} {name!r}{form}, which could "
                        "falsify the results; don't trust this run"
                    )
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # messages quote damaged text, which isn't decoded
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise RunError(f"{path} can't be opened ({error}); check its permissions") from None
        raise RunError(f"{path} is damaged ({error}); get the run again") from None


def _journal(connection: sqlite3.Connection) -> Journal:
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(records)")]
    if not columns:
        return Journal(0, None, iter(()))
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
    totals = None
    if "checksum" in columns:
        try:
            ((records, checksums, statement),) = connection.execute("SELECT * FROM totals").fetchall()
            totals = int(records), int(checksums or "0", 16), str(statement)
        except (ValueError, TypeError, OverflowError, sqlite3.OperationalError) as error:
            raise sqlite3.DatabaseError(f"no totals of its records: {error}") from None
    rows = connection.execute('SELECT * FROM records ORDER BY "index"')
    return Journal(int(count), totals, (dict(zip(columns, row)) for row in rows))


def _resting(path: Path, held: ExitStack) -> str:
    """SQLite's address of the file itself where nothing lies beside it, and no lock is needed then; else of a copy.

    SQLite would write to an index beside a write-ahead file, and roll back what a killed writer left half done.
    """
    wal, index, journal = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    for _ in range(_TRIES):
        there = [file for file in (path, wal, index, journal) if _is_there(file)]
        if path not in there:
            raise RunError(f"{path.parent} has no {path.name}: there is nothing to verify")
        beside = [file for file in (wal, journal) if file in there]
        if not beside:
            return f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
        if _copied(path, beside, folder):
            return f"{(folder / path.name).as_uri()}?mode=rw"
        time.sleep(_PAUSE)
    raise RunError(f"{path}: another process is writing it all the time; wait for it to end")


def _is_there(path: Path) -> bool:
    """Whether there is such a file; RunError for a link, which SQLite would follow, or anything but a regular file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunError(f"{path} can't be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise RunError(f"{path} is a link and not followed; name the file itself, or copy it here")
    if not stat.S_ISREG(mode):
        raise RunError(f"{path} is not a regular file")
    return True


def _copied(path: Path, beside: list[Path], folder: Path) -> bool:
    """Whether the files could be copied as they were at one moment: a writer may be at work."""
    try:
        before = _moment(path, beside)
        for file in (path, *beside):
            with opened_file(file) as source, (folder / file.name).open("wb") as target:
                needed, free = os.fstat(source.fileno()).st_size, shutil.disk_usage(folder).free
                if needed > free:
                    raise RunError(
                        f"{file} must be copied, and {folder.parent} has no room for its {needed} bytes"
                    )
                shutil.copyfileobj(source, target)
        return before == _moment(path, beside)
    except FileNotFoundError:
        return False  # the writer is done, and took it away
    except OSError as error:
        raise RunError(f"{path} can't be copied to {folder.parent}: {error.strerror}") from None


def _moment(path: Path, beside: list[Path]) -> tuple[object, ...]:
    """What differs once a writer has changed the file, or begun the one beside it anew; that may have grown."""
    status = path.stat()
    starts = []
    for file in beside:
        with opened_file(file) as source:
            starts.append(source.read(_MOMENT_BYTES))
    return status.st_ino, status.st_size, status.st_mtime_ns, *starts


def _parse_npy(content: bytes) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Shape and values, last index fastest; ValueError for anything but an array of numbers, as many as its bytes."""
    if content[:6] != b"\x93NUMPY" or content[6:8] not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError("it doesn't begin as a .npy file of version 1 or 2 does")
    start = 10 if content[6] == 1 else 12
    end = start + int.from_bytes(content[8:start], "little")
    try:
        if end - start > _LONGEST_HEADER:
            raise ValueError
        header = ast.literal_eval(content[start:end].decode("latin-1"))
        shape, fortran, kind = header["shape"], header["fortran_order"], header["descr"]
        order, code = kind[0].replace("|", "<").replace("=", "<"), _TYPES[kind[1:]]
        width = struct.calcsize(f"{order}{code}")
    except Exception as error:  # it is parsed as Python is, which can fail in many ways
        raise ValueError(f"its header can't be read ({type(error).__name__})") from None
    if not isinstance(shape, tuple) or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"no array has the shape {shape}")
    count, held = math.prod(shape), len(content) - end
    if count * width != held:
        raise ValueError(f"its header claims {count * width} bytes, it holds {held}")
    if not 0 < count <= _MOST_SCALES:
        raise ValueError("no array of numbers")
    values = struct.unpack(f"{order}{count}{code}", content[end:])
    if fortran:
        places, step = [0], 1
        for side in shape:
            places = [place + k * step for place in places for k in range(side)]
            step *= side
        values = tuple(values[place] for place in places)
    return shape, tuple(map(float, values))


def _number_of_json(text: str) -> int | float:
    if len(text) > _LONGEST_NUMBER or not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a number of JSON, or one of {len(text)} characters")
    return int(text) if text.lstrip("-").isdigit() else value


_NUMBERS: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), _number_of_json)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:40]!r} is given twice")
    return fields
