"""A published data set in a data directory, in the layout that readers look for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smoothcert.datasets.places import candidate_places
from smoothcert.datasets.published import Publication, PublishedFile
from smoothcert.downloads.archives import unpack
from smoothcert.downloads.mirrors import read_mirror
from smoothcert.downloads.transfer import fetch_file, sha256_of
from smoothcert.errors import DataError, OutputError
from smoothcert.files import opened_file, read_lines, write_atomically

SUMS = "SHA256SUMS"
"""Beside files that came out of an archive: their hashes, as ``sha256sum -c`` takes them."""


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
    """Make ``root`` hold the data set: files that are right stay, missing ones are fetched, others are refused.

    ``mirrors`` are asked instead of the known ones. An archive is unpacked and then removed.
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
    watch.begin(sum(file.size - _came(folder / file.name, file.size) for file in missing), len(missing))
    for file in missing:
        fetch_file(file, folder / file.name, places, watch.received)
        watch.finished()
    if publication.members:
        (archive,) = publication.files
        hashes = unpack(folder / archive.name, publication.members, folder)
        lines = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
        write_atomically(folder / SUMS, lines.encode())
        if missing:
            (folder / archive.name).unlink()
    return Fetched(folder, tuple(file.name for file in missing))


def found_in(publication: Publication, root: Path | None) -> tuple[Path | None, int, list[Path]]:
    """The first folder that holds files of the data set, how many of them, and the folders that are looked into.

    By name alone, packed or not: what a file holds is told when it is read, and checked when it is fetched.
    """
    places = candidate_places(root, publication.folders, publication.system_places)
    for place in places:
        there = sum(
            (place / name).is_file() or (place / name).with_suffix("").is_file()
            for name in publication.installed
        )
        if there:
            return place, there, places
    return None, 0, places


def _is_there(path: Path, wanted: PublishedFile) -> bool:
    try:
        found = _sha256(path)
    except FileNotFoundError:
        return False
    if found != wanted.sha256:
        raise DataError(
            f"{path} is there, but isn't the published file: its SHA-256 is {found[:12]}…, not {wanted.sha256[:12]}…; "
            "move it away"
        )
    return True


def _unpacked_before(publication: Publication, folder: Path) -> bool:
    """Whether all files are there and have the hashes that were written down as they came out of the archive."""
    stated = {line[66:]: line[:64] for line in read_lines(folder / SUMS)}
    if set(stated) != set(publication.installed):
        return False
    try:
        for name, digest in stated.items():
            if _sha256(folder / name) != digest:
                raise DataError(
                    f"{folder / name} was changed since it was fetched (see {SUMS}); move it away"
                )
    except FileNotFoundError:
        return False
    return True


def _sha256(path: Path) -> str:
    with opened_file(path) as file:
        return sha256_of(file)


def _came(path: Path, size: int) -> int:
    """Bytes that an earlier try has left."""
    try:
        return min(size, os.lstat(path.with_name(f"{path.name}.part")).st_size)
    except OSError:
        return 0
