"""The wanted files of an archive, unpacked: the archive chooses neither where they go nor how large they are."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from smoothcert.errors import DataError
from smoothcert.files import opened_file, read_file, write_atomically

_OTHERS = 2**24  # bytes that an archive may hold besides: a page that describes it


def unpack(archive: Path, members: Sequence[tuple[str, int]], folder: Path) -> dict[str, str]:
    """Put the files ``members`` (path inside, size) into ``folder`` by their last names; their SHA-256.

    Other members are passed over, whatever they are called. A file that is there already must be the same.
    """
    wanted = dict(members)
    hashes: dict[str, str] = {}
    most = sum(wanted.values()) + _OTHERS
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
                    raise DataError(
                        f"{archive}: {member.name} isn't the one file of its size: fetch it again"
                    )
                content = file.read()
                hashes[name] = hashlib.sha256(content).hexdigest()
                _put(folder / name, content)
                if len(hashes) == len(wanted):
                    return hashes
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} can't be unpacked ({error}): fetch it again") from None
    raise DataError(f"{archive} has {len(hashes)} of the {len(wanted)} files expected: fetch it again")


def _put(path: Path, content: bytes) -> None:
    try:
        found = read_file(path, 2 * len(content) + 1)
    except FileNotFoundError:
        write_atomically(path, content)
        return
    if found != content:
        raise DataError(f"{path} is there and differs from the published file; move it away")
