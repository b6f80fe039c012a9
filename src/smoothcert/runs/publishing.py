"""Publishing finished runs to object storage, and reading published runs as any stranger's."""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from smoothcert.architectures.base import WEIGHTS_NAME
from smoothcert.databases import COMPANIONS
from smoothcert.errors import InvalidValueError, MissingExtraError, OutputError, RunError
from smoothcert.extras import EXTRAS, require
from smoothcert.files import MOST_TEXT, opened_file, parse_json, sealed, unsealed
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import read_run

PROTOCOLS = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "file": "fsspec"}
"""Kinds of stores, and the package that speaks to each. fsspec knows more, some of which open other addresses."""

_CHUNK = 1 << 22
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SECRET = re.compile(r"(?i)KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|SAS|SIGNATURE|CONNECTION_STRING")
_SHORTEST_SECRET = 4
_HOW = "write PROTOCOL://BUCKET/PREFIX; keys come from the environment or the provider's own files"


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

    def copy(self, name: str, to: BinaryIO, most: float = math.inf) -> StoredFile | None:
        """Copy an object of at most ``most`` bytes and return what the store gave; None where there is none."""
        size, digest = 0, hashlib.sha256()
        try:
            with self._explained("read"), self._system.open(self._path(name), "rb") as file:
                while part := file.read(_CHUNK):
                    size += len(part)
                    if size > most:
                        raise RunError(f"{self.place}/{name} has more than the allowed {most} bytes")
                    digest.update(part)
                    to.write(part)
        except _AbsentError:
            return None
        return StoredFile(size, digest.hexdigest())

    def stored(self, name: str) -> StoredFile | None:
        """What an object is as the store gives it back; None where there is none."""
        with Path(os.devnull).open("wb") as nowhere:
            return self.copy(name, nowhere)

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


_FORMAT = 1
_MOST_BYTES = 2**37
_MOST_FILES = 2**21
_MODEL = (WEIGHTS_NAME, Path(WEIGHTS_NAME).with_suffix(".json").name, RunFiles.checkpoint.name)
_OTHERS = {
    file.name
    for file in (RunFiles.statement, RunFiles.journal, RunFiles.answers, RunFiles.recipe, RunFiles.metrics)
}
_HEX = re.compile(r"[0-9a-f]{64}")


class DamagedListError(RunError):
    """A list of files that makes no sense."""


@dataclass(frozen=True)
class Published:
    """What a publication put where."""

    place: str
    files: int
    bytes: int
    uploaded: bool
    """False where the very run was there already."""


def publish(
    directory: Path,
    address: str,
    *,
    with_model: bool = False,
    replace: bool = False,
    on_file: Callable[[int], None] = lambda _: None,
) -> Published:
    """Put a finished run into a store; readers there get these very bytes or a refusal.

    The list of its files, without which nothing is read, goes last, after every file was read back and had its size and
    hash: an upload that was killed is not a run, and the same command completes it. Weights and checkpoints stay here
    unless they are asked for. Another run that is there is refused, or replaced where that is asked for. ``on_file`` is
    called with the number of files after each of them.
    """
    place = Place.parse(address)
    store = ObjectStore(place)
    if place.protocol == "file" and Path(place.path).resolve().is_relative_to(directory.resolve()):
        raise RunError(f"{place} is the run itself, or inside it: choose another place")
    paths = _finished_files(directory, with_model)
    files = {name: _stored(path) for name, path in paths.items()}
    try:
        there = _read_list(store)
    except DamagedListError:
        if not replace:
            raise
        there = None  # of such a list nothing is kept
    done = Published(str(place), len(files), sum(one.bytes for one in files.values()), there != files)
    if there == files and not _unlike(store, files):
        return done
    if there != files and not replace:
        # What an upload of this run that was killed left is no run.
        mine = (None, files[RunFiles.statement.name])
        if there is not None or store.stored(RunFiles.statement.name) not in mine:
            raise RunError(f"{store.place} holds another run: choose another prefix, or give --replace")
    # First what makes it a run, then what it is made of.
    for name in (RunFiles.published.name, RunFiles.statement.name, *sorted(set(there or ()) - files.keys())):
        store.remove(name)
    for name, path in paths.items():
        store.put(name, path)
        on_file(len(paths))
    if unlike := _unlike(store, files):
        raise RunError(
            f"{place}: {unlike} isn't there as it was sent: another process may be publishing to the same place, or "
            "the run is changing. Nothing can be read there now; give the same command again"
        )
    listed = {"format": _FORMAT, "files": {name: asdict(one) for name, one in files.items()}}
    store.put_bytes(RunFiles.published.name, (json.dumps(sealed(listed), indent=2) + "\n").encode())
    if _read_list(store) != files:
        raise RunError(f"{place}: its list of files isn't there as it was sent; rerun the same command")
    return done


def local_run(text: str) -> Path:
    """The directory of a run: the path that was given, or a private copy of what was published at an address.

    The copy has only files that a run has, each with the size and hash that were published. It goes with the process.
    """
    if "://" not in text:
        return Path(text)
    place = Place.parse(text)
    if place.protocol == "file":
        return Path(place.path)
    store = ObjectStore(place)
    files = _read_list(store)
    if files is None:
        raise RunError(
            f"{place} is not a published run: it has no {RunFiles.published.name}, as when an upload isn't finished. "
            "Put it there with `smoothcert run publish`, or copy the directory here"
        )
    wanted = {name: one for name, one in files.items() if name not in _MODEL}
    folder = Path(_held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
    total, free = sum(one.bytes for one in wanted.values()), shutil.disk_usage(folder).free
    if total > free:
        raise RunError(f"{place} has {total} bytes, {folder} has room for {free}: set TMPDIR to another disk")
    directory = folder / place.name
    directory.mkdir()
    for name, one in wanted.items():
        (directory / name).parent.mkdir(exist_ok=True)
        with (directory / name).open("xb") as file:
            if store.copy(name, file, one.bytes) != one:
                raise RunError(
                    f"{place}/{name} isn't what was published: it was changed or is being replaced"
                )
    return directory


_held = ExitStack()
atexit.register(_held.close)


def _finished_files(directory: Path, with_model: bool) -> dict[str, Path]:
    """The files of a finished run in the order in which they are sent: the statement, which makes it a run, last."""
    files = RunFiles(directory)
    manifest = Manifest.load(directory)
    if manifest.kind == "fit-noise":
        raise RunError(f"{directory} is a fit of noise: publish the runs that were certified with it")
    if manifest.kind == "fit-levels":
        raise RunError(f"{directory} is a chooser of levels: publish the runs that were certified with it")
    if manifest.kind == "train":
        if not (directory / WEIGHTS_NAME).is_file():
            raise RunError(f"{directory} is a training that isn't finished: give its command again first")
        names = [files.recipe.name, files.metrics.name]
    else:
        if (shortfall := read_run(directory).shortfall) is not None:
            raise RunError(f"{directory} holds {shortfall}: only finished runs are published")
        for end in COMPANIONS:
            if files.journal.with_name(files.journal.name + end).exists():
                raise RunError(
                    f"{files.journal}{end} is there, as while a process reads or writes the run: publish it when that "
                    "is over; after a kill, give the command that made the run again"
                )
        names = [*files.kept_names(), files.answers.name, files.journal.name]
    if with_model:
        if not (directory / WEIGHTS_NAME).is_file():
            where = "" if manifest.origin.model is None else f" ({manifest.origin.model})"
            raise RunError(
                f"{directory} holds no weights for --with-model; publish the model's own run{where}"
            )
        names += _MODEL
    paths = {name: directory / name for name in names if (directory / name).is_file()}
    return paths | {files.statement.name: files.statement}


def _stored(path: Path) -> StoredFile:
    with opened_file(path, links=False) as file:
        digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]  # a BufferedReader
        return StoredFile(file.tell(), digest.hexdigest())


def _unlike(store: ObjectStore, files: Mapping[str, StoredFile]) -> str | None:
    """The first file that isn't in the store as it is to be."""
    return next((name for name, one in files.items() if store.stored(name) != one), None)


def _read_list(store: ObjectStore) -> dict[str, StoredFile] | None:
    content = io.BytesIO()
    if store.copy(RunFiles.published.name, content, MOST_TEXT) is None:
        return None
    try:
        stated = unsealed(parse_json(content.getvalue()))
        if stated.get("format") != _FORMAT or not isinstance(stated.get("files"), dict):
            raise ValueError(f"it isn't in format {_FORMAT}")
        files = {name: _checked(name, one) for name, one in stated["files"].items()}
        if len(files) > _MOST_FILES or sum(one.bytes for one in files.values()) > _MOST_BYTES:
            raise ValueError("it lists more than a run has")
        return files
    except ValueError as error:
        raise DamagedListError(
            f"{store.place}/{RunFiles.published.name} is damaged ({error}); publish the run again with --replace"
        ) from None


def _checked(name: str, stated: Any) -> StoredFile:
    if not RunFiles.keeps(name) and name not in _MODEL and name not in _OTHERS:
        raise ValueError(f"{name[:100]!r} is not a file of a run")
    if not isinstance(stated, dict) or stated.keys() != {"bytes", "sha256"}:
        raise ValueError(f"what it says of {name} is not a size and hash")
    size, digest = stated["bytes"], stated["sha256"]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"the size of {name} is not a size")
    if not isinstance(digest, str) or not _HEX.fullmatch(digest):
        raise ValueError(f"the hash of {name} is not a SHA-256")
    return StoredFile(size, digest)
