"""Published data sets fetched from the web: no file gets its name before its SHA-256 is the known one."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from io import FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit

from smoothcert.datasets.published import Publication, PublishedFile, candidate_places
from smoothcert.errors import DataError, InvalidValueError, OutputError
from smoothcert.files import lock, open_own, opened_file, read_file, read_lines, write_atomically

SUMS = "SHA256SUMS"
"""Beside files that came out of an archive: their hashes, as ``sha256sum -c`` takes them."""

_SILENCE = 30.0  # seconds that a server may send nothing
_TRIES, _PAUSE = 5, 1.0  # connections that may break on one mirror, and the seconds before the next
_CHUNK = 1 << 16
_BESIDE = 2**24  # bytes that an archive may hold beside the files wanted: a page that describes it
_NETWORK_ERRORS = (OSError, HTTPException, ValueError)  # UnicodeError, for odd addresses, is a ValueError
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]+|\*)")


@dataclass(frozen=True)
class Fetched:
    """Where a data set is, and which of its published files were fetched now; the others were there, and are right."""

    folder: Path
    fetched: tuple[str, ...]


@dataclass(frozen=True)
class Watch:
    """Told of progress: bytes to come and their files, bytes that came, a file that is complete."""

    begin: Callable[[int, int], None] = lambda _bytes, _files: None
    received: Callable[[int], None] = lambda _bytes: None
    finished: Callable[[], None] = lambda: None


def fetch(
    publication: Publication, root: Path, mirrors: Sequence[str] = (), watch: Watch | None = None
) -> Fetched:
    """Make ``root`` hold the data set: files that are right stay, missing ones are fetched, others are rejected.

    ``mirrors`` replace the known ones. An archive is unpacked and then removed.
    """
    watch = watch or Watch()
    places = [read_mirror(text) for text in mirrors or publication.mirrors]
    folder = root.expanduser() / publication.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} can't be made: {error.strerror}") from None
    if publication.members and _unpacked_before(publication, folder):
        return Fetched(folder, ())
    missing = [file for file in publication.files if not _is_there(folder / file.name, file)]
    watch.begin(sum(file.size - _kept_bytes(folder / file.name, file.size) for file in missing), len(missing))
    for file in missing:
        if publication.zipped is None:
            _fetch_file(file, folder / file.name, places, watch.received)
        else:
            _fetch_zipped(file, publication.zipped, folder / file.name, places, watch.received)
        watch.finished()
    if publication.members:
        (archive,) = publication.files
        hashes = _unpack(folder / archive.name, dict(publication.members), folder)
        lines = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
        write_atomically(folder / SUMS, lines.encode())
        if missing:
            (folder / archive.name).unlink()
    return Fetched(folder, tuple(file.name for file in missing))


def found_in(publication: Publication, root: Path | None) -> tuple[Path | None, int, list[Path]]:
    """The first folder that holds files of the data set, how many of them, and the folders that are searched.

    By name alone, packed or not: the content is checked when a file is read or fetched.
    """
    places = candidate_places(root, publication.folders, publication.system_places)
    for place in places:
        paths = [place / name for name in publication.installed]
        if count := sum(path.is_file() or path.with_suffix("").is_file() for path in paths):
            return place, count, places
    return None, 0, places


def _is_there(path: Path, wanted: PublishedFile) -> bool:
    try:
        actual = _sha256(path)
    except FileNotFoundError:
        return False
    if actual != wanted.sha256:
        raise DataError(
            f"{path} is there, but isn't the published file: its SHA-256 is {actual[:12]}…, not {wanted.sha256[:12]}…; "
            "move it away"
        )
    return True


def _unpacked_before(publication: Publication, folder: Path) -> bool:
    """Whether all files are there and have the hashes that were written down as they came out of the archive."""
    stated = {line[66:]: line[:64] for line in read_lines(folder / SUMS)}
    if set(stated) != set(publication.installed):
        return False
    for name, digest in stated.items():
        try:
            actual = _sha256(folder / name)
        except FileNotFoundError:
            return False
        if actual != digest:
            raise DataError(f"{folder / name} was changed since it was fetched (see {SUMS}); move it away")
    return True


def _sha256(path: Path) -> str:
    with opened_file(path) as file:
        return hashlib.file_digest(cast(FileIO, file), "sha256").hexdigest()


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _kept_bytes(path: Path, size: int) -> int:
    try:
        return min(size, os.lstat(_part(path)).st_size)
    except OSError:
        return 0


# Mirrors.


@dataclass(frozen=True)
class Mirror:
    """An http or https folder. Its address is shown without ``user:password@``, which is sent to it alone."""

    address: str
    credentials: str | None = field(default=None, repr=False)

    def address_of(self, name: str) -> str:
        """The address of a file."""
        return self.address + quote(name)

    def ask(self, name: str, start: int) -> HTTPResponse:
        """The answer to a request for a file from byte ``start`` on; proxies are those of the environment."""
        asked = request.Request(self.address_of(name), headers={"Accept-Encoding": "identity"})
        if start:
            asked.add_header("Range", f"bytes={start}-")
        if self.credentials is not None:
            # A redirection to another host must not pass them on.
            asked.add_unredirected_header("Authorization", f"Basic {self.credentials}")
        # http and https and nothing else: urllib's default opener would also open files and ftp.
        opener = request.OpenerDirector()
        for handler in (
            request.ProxyHandler(),
            request.HTTPHandler(),
            request.HTTPSHandler(),
            request.HTTPDefaultErrorHandler(),
            request.HTTPErrorProcessor(),
            _SameScheme(),
        ):
            opener.add_handler(handler)
        return cast(HTTPResponse, opener.open(asked, timeout=_SILENCE))


class _SameScheme(request.HTTPRedirectHandler):
    """Follows a redirection within a scheme, or from http to https."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        """The next request; HTTPError where it would leave the scheme."""
        if urlsplit(newurl).scheme not in {"https", req.type}:
            raise HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_mirror(text: str) -> Mirror:
    """``https://HOST/FOLDER``; an error message does not repeat what may be a password."""
    try:
        parts = urlsplit(text.strip())
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        raise InvalidValueError("a --mirror can't be read: write https://HOST/FOLDER") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValueError(
            f"a --mirror must be an http or https address, got the scheme {parts.scheme!r}: write https://HOST/FOLDER, "
            "or copy files that are on this machine into the data directory"
        )
    if parts.query or parts.fragment:
        raise InvalidValueError(
            f"the --mirror at {parts.hostname} has a ? or #: write https://HOST/FOLDER, file names are added to it"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path.rstrip("/"), safe="/%:@~!$&'()*+,;=")
    credentials = None
    if parts.username is not None or parts.password is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(pair.encode()).decode()
    return Mirror(f"{parts.scheme}://{host}{port}{path}/", credentials)


# One file.


class _RejectedError(Exception):
    """Why a mirror can't give the file."""


def _fetch_file(
    wanted: PublishedFile, path: Path, mirrors: Sequence[Mirror], received: Callable[[int], None]
) -> None:
    """Put the file at ``path``, from the first mirror that has it.

    Until its hash is right it is called ``.part``: what a kill or a broken connection leaves there is resumed. No more
    is written than the published size, whatever a server sends.
    """
    part = _part(path)
    with _locked(part) as file:
        faults = []
        for mirror in mirrors:
            try:
                _Download(wanted, file, mirror, received).complete()
            except _RejectedError as fault:
                faults.append(f"{mirror.address_of(wanted.name)}: {fault}")
                continue
            try:
                os.fsync(file.fileno())
                part.replace(path)
            except OSError as error:
                raise OutputError(f"{path} can't be written: {error.strerror}") from None
            return
        kept = os.fstat(file.fileno()).st_size
        if not kept:
            part.unlink(missing_ok=True)
    resume = f"; the {kept} bytes that came are kept: rerun the same command to resume" if kept else ""
    raise DataError(
        f"{wanted.name} can't be fetched: {'; '.join(faults)}. Check the network (proxies are taken from HTTPS_PROXY "
        f"and HTTP_PROXY), or name another place that has the file with --mirror URL{resume}"
    )


def _fetch_zipped(
    wanted: PublishedFile,
    archive: str,
    path: Path,
    mirrors: Sequence[Mirror],
    received: Callable[[int], None],
) -> None:
    """Put a file at ``path`` that mirrors have inside a zip archive, of which no hash is known: the file's own is."""
    faults = []
    for mirror in mirrors:
        try:
            with mirror.ask(archive, 0) as answer:
                content = answer.read(_BESIDE)
            with zipfile.ZipFile(io.BytesIO(content)) as members, members.open(wanted.name) as member:
                found = member.read(wanted.size + 1)
        except (*_NETWORK_ERRORS, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            told = f"HTTP {error.code}" if isinstance(error, HTTPError) else _in_words(error)
            faults.append(f"{mirror.address_of(archive)}: {told}")
            continue
        if (actual := hashlib.sha256(found).hexdigest()) == wanted.sha256:
            write_atomically(path, found)
            received(len(found))
            return
        faults.append(
            f"{mirror.address_of(archive)}: the SHA-256 of its {wanted.name} is {actual[:12]}…, not "
            f"{wanted.sha256[:12]}…"
        )
    raise DataError(
        f"{wanted.name} can't be fetched: {'; '.join(faults)}. Check the network (proxies are taken from HTTPS_PROXY "
        f"and HTTP_PROXY), name another place that has {archive} with --mirror URL, or put the file at {path} by hand"
    )


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
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


@dataclass
class _Download:
    """One file from one mirror into an open file, which may hold the beginning of it already."""

    wanted: PublishedFile
    file: BinaryIO
    mirror: Mirror
    received: Callable[[int], None]

    @property
    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def truncate(self) -> None:
        self.file.seek(0)
        self.file.truncate()

    def complete(self) -> None:
        """Fill the file and check it; what was there before is discarded where it may be the damage."""
        resumed = self.size > 0
        while True:
            self.fill()
            self.file.seek(0)
            actual = hashlib.file_digest(cast(FileIO, self.file), "sha256").hexdigest()
            if actual == self.wanted.sha256:
                return
            self.truncate()
            if not resumed:
                raise _RejectedError(f"its SHA-256 is {actual[:12]}…, not {self.wanted.sha256[:12]}…")
            resumed = False

    def fill(self) -> None:
        broken = 0
        while self.size < self.wanted.size:
            try:
                answer = self.mirror.ask(self.wanted.name, self.size)
            except HTTPError as error:
                error.close()
                # Range Not Satisfiable: the server's file ends before what we have does.
                if error.code == 416 and self.size:
                    self.truncate()
                    continue
                why = ", a redirection to another scheme or without end" if 300 <= error.code < 400 else ""
                raise _RejectedError(f"HTTP {error.code}{why}") from None
            except _NETWORK_ERRORS as error:
                raise _RejectedError(_in_words(error)) from None
            with answer:
                self.prepare(answer)
                fault = self.take(answer)
            if fault is not None:
                broken += 1
                if broken == _TRIES:
                    raise _RejectedError(f"{fault} after {self.size} of {self.wanted.size} bytes")
                time.sleep(_PAUSE)

    def prepare(self, answer: HTTPResponse) -> None:
        if answer.status == 206:
            stated = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if stated is None or int(stated[1]) != self.size:
                raise _RejectedError("it sends another part than was asked for")
            size = stated[2]
        elif answer.status == 200:
            size = answer.headers.get("Content-Length", "*").strip()
        else:
            raise _RejectedError(f"HTTP {answer.status}")
        if size not in ("*", str(self.wanted.size)):
            raise _RejectedError(f"its file has {size[:20]} bytes, the published one {self.wanted.size}")
        if answer.status == 200:  # from the start, whatever was asked for
            self.truncate()
        self.file.seek(0, os.SEEK_END)

    def take(self, answer: HTTPResponse) -> str | None:
        while True:
            left = self.wanted.size - self.size
            try:
                content = answer.read1(min(_CHUNK, left + 1))  # what is there: a kill loses none of it
            except _NETWORK_ERRORS as error:
                return _in_words(error)
            if len(content) > left:
                raise _RejectedError(f"its file has more than the published {self.wanted.size} bytes")
            if not content:
                return "it broke off" if left else None
            try:
                _write(self.file, content)
            except OSError as error:
                raise OutputError(
                    f"{self.wanted.name} can't be written: {error.strerror}; what came is kept: free some space and "
                    "rerun the same command"
                ) from None
            self.received(len(content))


def _write(file: BinaryIO, content: bytes) -> None:
    """All of it: a file without a buffer may take less than it is given."""
    while content:
        content = content[file.write(content) :]


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


# Archives.


def _unpack(archive: Path, wanted: dict[str, int], folder: Path) -> dict[str, str]:
    """Put the files ``wanted`` (path inside, size) into ``folder`` by their last names; their SHA-256.

    The archive chooses neither where they go nor how large they are: other members are ignored, whatever they are
    called. A file that is there already must be the same.
    """
    hashes: dict[str, str] = {}
    most = sum(wanted.values()) + _BESIDE
    try:
        with opened_file(archive) as raw, tarfile.open(fileobj=raw, mode="r|gz") as tar:
            for member in tar:
                if member.offset_data + member.size > most:
                    raise DataError(f"{archive} holds more than {most} bytes: it isn't what was published")
                if member.name not in wanted:
                    continue
                name = member.name.rpartition("/")[2]
                file = tar.extractfile(member) if member.isreg() else None
                if file is None or member.size != wanted[member.name] or name in hashes:
                    raise DataError(f"{archive}: {member.name} isn't alone of its size: fetch it again")
                content = file.read()
                hashes[name] = hashlib.sha256(content).hexdigest()
                try:
                    same = read_file(folder / name, 2 * len(content) + 1) == content
                except FileNotFoundError:
                    write_atomically(folder / name, content)
                else:
                    if not same:
                        raise DataError(f"{folder / name} differs from the published file; move it away")
                if len(hashes) == len(wanted):
                    return hashes
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} can't be unpacked ({error}): fetch it again") from None
    raise DataError(f"{archive} has {len(hashes)} of the {len(wanted)} files expected: fetch it again")
