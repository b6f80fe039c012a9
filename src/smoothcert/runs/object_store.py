"""Object storage: a place among a few kinds of stores, spoken to through fsspec, whose errors keep no secret."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from smoothcert.errors import InvalidValueError, MissingExtraError, OutputError, RunError
from smoothcert.extras import EXTRAS, require

PROTOCOLS = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "file": "fsspec"}
"""Kinds of stores, and the package that speaks to each. fsspec knows more, some of which open other addresses."""

_CHUNK = 1 << 22
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SECRET = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|SAS|SIGNATURE|CONNECTION_STRING", re.IGNORECASE
)
_SHORTEST_SECRET = 4
_HOW = "write PROTOCOL://BUCKET/PREFIX; keys come from the environment or the provider's own files"


def is_remote(text: str) -> bool:
    """Whether it is an address of a store and no path."""
    return "://" in text


@dataclass(frozen=True)
class Place:
    """A prefix in a store. It names no credentials, so that it can be shown and kept."""

    protocol: str
    path: str
    """Bucket and prefix; of ``file`` the directory."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``s3://bucket/prefix``. What may hold a secret is refused without being repeated."""
        found = _ADDRESS.fullmatch(text)
        if found is None or "::" in text:
            raise InvalidValueError(
                f"an address of a store is one of {_kinds()}, and one alone: chains (::) could open anything; {_HOW}"
            )
        protocol, rest = found[1].lower(), found[2]
        if protocol not in PROTOCOLS:
            raise InvalidValueError(f"runs are kept in {_kinds()}, got an address of {protocol}://; {_HOW}")
        bucket = rest.partition("/")[0]
        # abfs://CONTAINER@ACCOUNT.HOST/… names a container so.
        if "?" in rest or "#" in rest or ":" in bucket or ("@" in bucket and protocol not in ("az", "abfs")):
            raise InvalidValueError(
                f"an address of {protocol}:// with credentials or parameters in it is refused, and not repeated here: "
                f"a list of processes would show them; {_HOW}"
            )
        if not rest.isprintable():
            raise InvalidValueError(f"an address of {protocol}:// with control characters is refused; {_HOW}")
        path = rest.rstrip("/")
        parts = path.split("/")[1 if protocol == "file" else 0 :]
        whole = path.startswith("/") if protocol == "file" else len(parts) > 1
        if not whole or any(part in ("", ".", "..") for part in parts):
            raise InvalidValueError(f"{protocol}://{rest} names no prefix in a bucket; {_HOW}")
        return cls(protocol, path)

    def __str__(self) -> str:
        return f"{self.protocol}://{self.path}"

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class StoredFile:
    """Size and SHA-256 of an object."""

    bytes: int
    sha256: str


class _AbsentError(Exception):
    """There is no such object."""


class ObjectStore:
    """The objects under a place. Every failure is a RunError or an OutputError without secrets."""

    def __init__(self, place: Place) -> None:
        self.place = place
        package = PROTOCOLS[place.protocol]
        if package in EXTRAS:
            require(package, f"{place.protocol}://")
        import fsspec

        try:
            # Nothing is remembered: what others have put or removed since must be seen.
            options = {"auto_mkdir": True} if place.protocol == "file" else {"use_listings_cache": False}
            with self._explained("opened"):
                self._system: Any = fsspec.filesystem(place.protocol, skip_instance_cache=True, **options)
        except ImportError:
            raise MissingExtraError(
                package, "storage", f"{place.protocol}:// (and `pip install {package}`)"
            ) from None

    def read(self, name: str, most: int) -> bytes | None:
        """A whole object of at most ``most`` bytes; None where there is none."""
        content = bytearray()

        def take(part: bytes) -> None:
            content.extend(part)
            if len(content) > most:
                raise RunError(
                    f"{self.place}/{name} has more than {most} bytes: it isn't what it is taken for"
                )

        return None if self._stream(name, take) is None else bytes(content)

    def fetch(self, name: str, to: Path, size: int) -> str | None:
        """Copy an object into a new file and return its SHA-256; no more than ``size`` bytes and one are taken."""
        with to.open("xb") as file:

            def take(part: bytes) -> None:
                if file.tell() + len(part) > size:
                    raise RunError(f"{self.place}/{name} has more than the {size} bytes that were published")
                file.write(part)

            return self._stream(name, take)

    def stored(self, name: str) -> StoredFile | None:
        """What an object is as the store gives it back; None where there is none."""
        size = 0

        def take(part: bytes) -> None:
            nonlocal size
            size += len(part)

        found = self._stream(name, take)
        return None if found is None else StoredFile(size, found)

    def put(self, name: str, path: Path) -> None:
        """Upload a file; one that is there is replaced."""
        with self._explained("written"):
            self._system.put_file(str(path), self._path(name))

    def put_bytes(self, name: str, content: bytes) -> None:
        """Upload an object."""
        with self._explained("written"):
            self._system.pipe_file(self._path(name), content)

    def remove(self, name: str) -> None:
        """Remove an object; nothing is said where there is none."""
        with self._explained("written"), suppress(FileNotFoundError):
            self._system.rm_file(self._path(name))

    def _stream(self, name: str, take: Callable[[bytes], None]) -> str | None:
        digest = hashlib.sha256()
        try:
            with self._explained("read"), self._system.open(self._path(name), "rb") as file:
                while part := file.read(_CHUNK):
                    digest.update(part)
                    take(part)
        except _AbsentError:
            return None
        return digest.hexdigest()

    def _path(self, name: str) -> str:
        return f"{self.place.path}/{name}"

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except (RunError, ImportError):
            raise
        except Exception as error:  # each store has its own
            if done == "read" and isinstance(error, FileNotFoundError):
                raise _AbsentError from None
            kind = OutputError if done == "written" else RunError
            said = scrubbed(str(error)).strip() or type(error).__name__
            raise kind(
                f"{self.place} can't be {done} ({type(error).__name__}: {said.splitlines()[0]})"
            ) from None


def scrubbed(text: str) -> str:
    """A message without what lets one in: secrets of the environment, users and parameters in addresses."""
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "…")
    text = re.sub(r"://[^/\s@]+@", "://…@", text)
    text = re.sub(r"(://[^\s?]+)\?\S+", r"\1?…", text)
    return re.sub(r"(?i)\b(signature|credential|authorization|token)([=:]\s*)\S+", r"\1\2…", text)


def _kinds() -> str:
    *first, last = (f"{name}://" for name in PROTOCOLS)
    return f"{', '.join(first)} or {last}"
