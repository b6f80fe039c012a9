"""Files that others may have made or may be writing to: read within limits, written whole, links never followed."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from smoothcert.errors import DataError, OutputError, PlatformError

ALWAYS_ADMITTED = 2**28
MOST_EXPANSION = 200
"""A file may claim :data:`ALWAYS_ADMITTED` bytes of contents, or so many times its own size: data compress less."""
MOST_TEXT = 2**26
"""Bytes of a statement, description or list of lines."""

_LONGEST_INTEGER = 100  # digits; a seed may have 39


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` by a complete file, durable before it is visible; a link of that name is replaced, not followed.

    Until then it has a random name, and is refused where that exists.
    """
    check_platform()
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{path} can't be written: {error.strerror}") from None


def append_line(path: Path, line: str) -> None:
    """Add a line and wait until it is on disk; a line that a kill cut off before it stays a line of its own."""
    try:
        with os.fdopen(open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+") as file:
            if file.tell() and not _ends_a_line(file):
                line = "\n" + line
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}") from None


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a regular file of one name, which is made if ``flags`` say so.

    A link is an OSError, as is anything that isn't a file or that another directory knows by another name: the
    directory's maker would choose what is written to.
    """
    check_platform()
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is not a regular file")
        if found.st_nlink > 1:
            raise OSError(0, "it has another name elsewhere (a hard link); copy it")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_folder(path: Path) -> None:
    """A folder inside a directory of ours; a link in its place is refused."""
    try:
        path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise OutputError(f"{path} is a link and not followed; remove it or choose another directory")
    except OSError as error:
        raise OutputError(f"{path} can't be made: {error.strerror}") from None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file that :func:`append_line` writes, one by one; none if there is no file.

    A line that a kill cut off, or damaged bytes, come as they are: the caller skips what it can't parse.
    """
    with suppress(FileNotFoundError), opened_file(path, links=False) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, 8 * MOST_TEXT)
        for line in file:
            yield line.decode(errors="replace").removesuffix("\n")


@contextmanager
def opened_file(path: Path, links: bool = True) -> Iterator[BinaryIO]:
    """A regular file to read. Anything else is a DataError: a pipe would keep us waiting, a device never end.

    Without ``links`` a link is refused as well: inside a directory of unknown origin, it would choose the file.
    """
    check_platform()
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        is_link = not links and path.is_symlink()
        reason = "it is a link, and not followed" if is_link else error.strerror
        raise DataError(f"{path} can't be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # first: of a folder, Python's own error would name the descriptor's number
        raise DataError(
            f"{path} can't be read: it is not a regular file; give a file, not a folder, pipe or device"
        )
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_file(path: Path, most: int, links: bool = True) -> bytes:
    """A whole file of at most ``most`` bytes; its size is looked at before memory is taken."""
    with opened_file(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        _check_size(path, size, most)
        content = file.read(size + 1)  # room is made for what is asked for
        _check_size(path, len(content), most)
        return content


def _check_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise DataError(f"{path} has {size} bytes, where {most} are the most: it isn't what it is taken for")


def check_expansion(what: str, claimed: int, stored: int) -> None:
    """Refuse contents so much larger than the bytes they come from that they can't be data."""
    if claimed > max(ALWAYS_ADMITTED, MOST_EXPANSION * stored):
        raise DataError(
            f"{what} claims {claimed} bytes of contents, {claimed // max(1, stored)} times the {stored} bytes that it "
            f"has; more than {MOST_EXPANSION} times is taken for a decompression bomb. If it is real, save it "
            "uncompressed"
        )


def parse_json(text: str | bytes) -> Any:
    """JSON from a file. ValueError for all that isn't: nesting too deep to parse and endless integers included.

    So is a name given twice: readers differ in which of the two they take.
    """
    try:
        return json.loads(
            text,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=_no_constant,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is beyond all numbers")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:40]!r} is given twice")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


_CHECKSUM_BYTES = 16
_CHECKSUM = "checksum"


def checksum(value: object) -> str:
    """Of plain values, whatever the order of their keys and the spaces between them.

    Checksums detect damage, not forgery: anyone can compute them.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return new_checksum(text.encode()).hexdigest()


def new_checksum(content: bytes) -> blake2b:
    """The hash that all checksums are made with."""
    return blake2b(content, digest_size=_CHECKSUM_BYTES)


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JSON object with a checksum of them all."""
    return {**fields, _CHECKSUM: checksum(fields)}


def unsealed(fields: Any) -> dict[str, Any]:
    """The fields without their checksum; ValueError where it doesn't match. Earlier versions wrote none."""
    if not isinstance(fields, dict):
        raise ValueError("it is not an object")
    stated = {name: value for name, value in fields.items() if name != _CHECKSUM}
    if _CHECKSUM in fields and fields[_CHECKSUM] != checksum(stated):
        raise ValueError("its checksum doesn't match: it was edited or damaged")
    return stated


def is_sealed(fields: Any) -> bool:
    """Whether there is a checksum at all."""
    return isinstance(fields, dict) and _CHECKSUM in fields


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Replace the file by one object with its checksum, in one step: it is there whole or not at all."""
    write_atomically(path, (json.dumps(sealed(fields), indent=2, ensure_ascii=False) + "\n").encode())


def check_platform() -> None:
    """Refuse an operating system without POSIX file locks, before anything is written without them."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        raise PlatformError from None


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed or the process ends; OSError where another holds it and we don't wait."""
    check_platform()
    import fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
