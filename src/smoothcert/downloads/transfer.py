"""One published file by HTTP: resumed where it broke off, checked before it gets its name."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError

from smoothcert.datasets.published import PublishedFile
from smoothcert.downloads.mirrors import Mirror
from smoothcert.errors import DataError, OutputError
from smoothcert.files import open_own
from smoothcert.platforms import lock

_CHUNK = 1 << 16
_TRIES = 5
_PAUSE = 1.0
"""Connections that may break on one mirror, and the seconds before the next."""

_NETWORK_ERRORS = (OSError, HTTPException, ValueError)  # of addresses, too: UnicodeError is a ValueError
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]+|\*)")


class _RefusedError(Exception):
    """Why a mirror can't give the file."""


def fetch_file(
    wanted: PublishedFile, path: Path, mirrors: Sequence[Mirror], received: Callable[[int], None]
) -> None:
    """Put the file at ``path``, from the first mirror that has it.

    Until its hash is right it is called ``.part``: what a kill or a broken line leaves there is gone on with. No more
    is written than the published size, whatever a server sends.
    """
    part = path.with_name(f"{path.name}.part")
    with _part_of_ours(part) as file:
        faults = []
        for mirror in mirrors:
            try:
                _complete(wanted, file, mirror, received)
            except _RefusedError as fault:
                faults.append(f"{mirror.address_of(wanted.name)}: {fault}")
                continue
            try:
                os.fsync(file.fileno())
                part.replace(path)
            except OSError as error:
                raise OutputError(f"{path} can't be written: {error.strerror}") from None
            return
        kept = _size(file)
        if not kept:
            part.unlink(missing_ok=True)
    came = f"; the {kept} bytes that came are kept, the same command goes on from there" if kept else ""
    raise DataError(
        f"{wanted.name} can't be fetched: {'; '.join(faults)}. Check the network (proxies are taken from HTTPS_PROXY "
        f"and HTTP_PROXY), or name another place that has the file with --mirror URL{came}"
    )


@contextmanager
def _part_of_ours(part: Path) -> Iterator[BinaryIO]:
    """The unfinished file, locked; another process's download is left to it."""
    while True:
        try:
            file = os.fdopen(open_own(part, os.O_RDWR | os.O_CREAT), "r+b", buffering=0)
        except OSError as error:
            raise OutputError(f"{part} can't be written: {error.strerror}") from None
        with file:
            try:
                lock(file.fileno(), wait=False)
            except OSError:
                raise OutputError(f"{part}: another process is fetching it; wait for it") from None
            # Between opening and locking, the process that had the lock may have renamed the file.
            if part.exists() and os.path.samestat(part.stat(), os.fstat(file.fileno())):
                yield file
                return


def _complete(wanted: PublishedFile, file: BinaryIO, mirror: Mirror, received: Callable[[int], None]) -> None:
    """Fill ``file`` and check it; what was there before is thrown away where it may be the damage."""
    resumed = _size(file) > 0
    while True:
        _fill(wanted, file, mirror, received)
        found = sha256_of(file)
        if found == wanted.sha256:
            return
        _truncate(file)
        if not resumed:
            raise _RefusedError(f"its SHA-256 is {found[:12]}…, not {wanted.sha256[:12]}…")
        resumed = False


def _fill(wanted: PublishedFile, file: BinaryIO, mirror: Mirror, received: Callable[[int], None]) -> None:
    broken = 0
    while _size(file) < wanted.size:
        try:
            answer = mirror.ask(wanted.name, _size(file))
        except HTTPError as error:
            error.close()
            # Range Not Satisfiable: its file ends before what we have does.
            if error.code == 416 and _size(file):
                _truncate(file)
                continue
            if 300 <= error.code < 400:
                raise _RefusedError(
                    f"HTTP {error.code}, a redirection to another scheme or without end"
                ) from None
            raise _RefusedError(f"HTTP {error.code}") from None
        except _NETWORK_ERRORS as error:
            raise _RefusedError(_in_words(error)) from None
        with answer:
            _prepare(wanted, file, answer)
            why = _take(wanted, file, answer, received)
        if why is not None:
            broken += 1
            if broken == _TRIES:
                raise _RefusedError(f"{why} after {_size(file)} of {wanted.size} bytes")
            time.sleep(_PAUSE)


def _prepare(wanted: PublishedFile, file: BinaryIO, answer: HTTPResponse) -> None:
    """Put ``file`` where the answer goes on; refuse an answer about a file of another size."""
    if answer.status == 206:
        told = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if told is None or int(told[1]) != _size(file):
            raise _RefusedError("it sends another part than was asked for")
        size = told[2]
    elif answer.status == 200:
        size = answer.headers.get("Content-Length", "*")
    else:
        raise _RefusedError(f"HTTP {answer.status}")
    if size.strip() not in ("*", str(wanted.size)):
        raise _RefusedError(f"its file has {size.strip()[:20]} bytes, the published one {wanted.size}")
    if answer.status == 200:  # from the start, whatever was asked for
        _truncate(file)
    file.seek(0, os.SEEK_END)


def _take(
    wanted: PublishedFile, file: BinaryIO, answer: HTTPResponse, received: Callable[[int], None]
) -> str | None:
    """Append what comes; why it ended too soon, None where it didn't."""
    while True:
        room = wanted.size - _size(file)
        try:
            content = answer.read1(min(_CHUNK, room + 1))  # what is there: a kill loses none of it
        except _NETWORK_ERRORS as error:
            return _in_words(error)
        if len(content) > room:
            raise _RefusedError(f"its file has more than the published {wanted.size} bytes")
        if not content:
            return "it broke off" if room else None
        try:
            _write(file, content)
        except OSError as error:
            raise OutputError(
                f"{wanted.name} can't be written: {error.strerror}; what came is kept: make room and give the same "
                "command again"
            ) from None
        received(len(content))


def sha256_of(file: BinaryIO) -> str:
    """The hash of a whole file, in hexadecimal."""
    digest = hashlib.sha256()
    file.seek(0)
    while content := file.read(1 << 20):
        digest.update(content)
    return digest.hexdigest()


def _write(file: BinaryIO, content: bytes) -> None:
    """All of it: a file without a buffer may take less than it is given."""
    while content:
        content = content[file.write(content) :]


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _truncate(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _in_words(error: BaseException) -> str:
    """What went wrong, without the address that a message may repeat."""
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, OSError) and str(error).startswith("Tunnel connection failed"):
        return f"the proxy says: {error}"
    return "no such address" if isinstance(error, ValueError) else f"it broke off ({type(error).__name__})"
