"""Publishing finished runs to object storage, and reading published runs as any stranger's."""

from __future__ import annotations

import atexit
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smoothcert.architectures.weights import WEIGHTS_NAME
from smoothcert.checksums import sealed, unsealed
from smoothcert.databases import COMPANIONS
from smoothcert.errors import RunError
from smoothcert.files import MOST_TEXT, opened_file, parse_json
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.object_store import ObjectStore, Place, StoredFile, is_remote
from smoothcert.runs.run import read_run

_FORMAT = 1
_MOST_BYTES = 2**37
_MOST_FILES = 2**21
_MODEL = (WEIGHTS_NAME, Path(WEIGHTS_NAME).with_suffix(".json").name, RunFiles.checkpoint.name)
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


def publish(directory: Path, address: str, *, with_model: bool = False, replace: bool = False) -> Published:
    """Put a finished run into a store; readers there get these very bytes or a refusal.

    The list of its files, without which nothing is read, goes last, after every file was read back and had its size and
    hash: an upload that was killed is no run, and the same command completes it. Weights and checkpoints stay here
    unless they are asked for. Another run that is there is refused, or replaced where that is asked for.
    """
    place = Place.parse(address)
    store = ObjectStore(place)
    if place.protocol == "file" and Path(place.path).resolve().is_relative_to(directory.resolve()):
        raise RunError(f"{place} is the run itself, or inside it: choose another place")
    paths = _finished_files(directory, with_model)
    files = {name: _stored(path) for name, path in paths.items()}
    there = _replaceable(store) if replace else _read_list(store)
    done = Published(str(place), len(files), sum(one.bytes for one in files.values()), there != files)
    if there == files and not _unlike(store, files):
        return done
    if there != files and not replace:
        _check_free(store, there, files[RunFiles.statement.name])
    # First what makes it a run, then what it is made of.
    for name in (RunFiles.published.name, RunFiles.statement.name, *sorted(set(there or ()) - files.keys())):
        store.remove(name)
    for name, path in paths.items():
        store.put(name, path)
    if unlike := _unlike(store, files):
        raise RunError(
            f"{place}: {unlike} isn't there as it was sent: another process may be publishing to the same place, or "
            "the run is changing. Nothing can be read there now; give the same command again"
        )
    store.put_bytes(RunFiles.published.name, _list(files))
    if _read_list(store) != files:
        raise RunError(
            f"{place}: the list of its files isn't there as it was sent; give the same command again"
        )
    return done


def local_run(text: str) -> Path:
    """The directory of a run: the path that was given, or a private copy of what was published at an address.

    The copy has only files that a run has, each with the size and hash that were published. It goes with the process.
    """
    if not is_remote(text):
        return Path(text)
    place = Place.parse(text)
    if place.protocol == "file":
        return Path(place.path)
    store = ObjectStore(place)
    files = _read_list(store)
    if files is None:
        raise RunError(
            f"{place} is no published run: it has no {RunFiles.published.name}, as when an upload isn't finished. "
            "Put it there with `smoothcert publish`, or copy the directory here"
        )
    wanted = {name: one for name, one in files.items() if name not in _MODEL}
    folder = Path(_held.enter_context(tempfile.TemporaryDirectory(prefix="smoothcert-")))
    total, free = sum(one.bytes for one in wanted.values()), shutil.disk_usage(folder).free
    if total > free:
        raise RunError(
            f"{place} has {total} bytes, where {folder} has room for {free}: set TMPDIR to another disk"
        )
    directory = folder / place.name
    directory.mkdir()
    for name, one in wanted.items():
        (directory / name).parent.mkdir(exist_ok=True)
        if store.fetch(name, directory / name, one.bytes) != one.sha256:
            raise RunError(
                f"{place}/{name} isn't what was published: it was changed or damaged, or is being replaced"
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
                    f"{files.journal}{end} is there, as while somebody reads or writes the run: publish it when that "
                    "is over; after a kill, give the command that made the run again"
                )
        names = [*files.kept_names(), files.answers.name, files.journal.name]
    if with_model:
        if not (directory / WEIGHTS_NAME).is_file():
            where = "" if manifest.origin.model is None else f" ({manifest.origin.model})"
            raise RunError(
                f"{directory} holds no weights: --with-model is for training runs; publish the model's own{where}"
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


def _check_free(store: ObjectStore, there: object, statement: StoredFile) -> None:
    """Refuse to write over a run; what an upload that was killed left of this one is none."""
    if there is not None or store.stored(RunFiles.statement.name) not in (None, statement):
        raise RunError(f"{store.place} holds another run already: choose another prefix, or give --replace")


def _list(files: Mapping[str, StoredFile]) -> bytes:
    stated = {"format": _FORMAT, "files": {name: asdict(one) for name, one in files.items()}}
    return (json.dumps(sealed(stated), indent=2) + "\n").encode()


def _replaceable(store: ObjectStore) -> dict[str, StoredFile] | None:
    """The list that is there; of one that can't be read nothing is kept."""
    try:
        return _read_list(store)
    except DamagedListError:
        return None


def _read_list(store: ObjectStore) -> dict[str, StoredFile] | None:
    """What was published, by name; None where nothing was, or not to its end."""
    content = store.read(RunFiles.published.name, MOST_TEXT)
    if content is None:
        return None
    try:
        stated = unsealed(parse_json(content))
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
    own = {RunFiles.statement, RunFiles.journal, RunFiles.answers, RunFiles.recipe, RunFiles.metrics}
    if not RunFiles.keeps(name) and name not in _MODEL and name not in {one.name for one in own}:
        raise ValueError(f"{name[:100]!r} is no file of a run")
    if not isinstance(stated, dict) or stated.keys() != {"bytes", "sha256"}:
        raise ValueError(f"what it says of {name} is no size and hash")
    size, digest = stated["bytes"], stated["sha256"]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"the size of {name} is no size")
    if not isinstance(digest, str) or not _HEX.fullmatch(digest):
        raise ValueError(f"the hash of {name} is no SHA-256")
    return StoredFile(size, digest)
