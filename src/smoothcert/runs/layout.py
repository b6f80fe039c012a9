"""The layout of a run's directory: every name of a file in it stands here, and nowhere else; and its checkpoint.

Training or a fit goes on from a checkpoint: it is replaced in one step, and refused if a bit of it has changed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from smoothcert.errors import DataError, RunError
from smoothcert.files import new_checksum, read_file, write_atomically

_MOST_KEPT = 2**31
_MOST_REASON = 2**16


@dataclass(frozen=True)
class _File:
    """A name that is a path where it is asked of a directory's files."""

    name: str

    @overload
    def __get__(self, files: None, kind: type[RunFiles]) -> _File: ...
    @overload
    def __get__(self, files: RunFiles, kind: type[RunFiles]) -> Path: ...
    def __get__(self, files: RunFiles | None, kind: type[RunFiles]) -> _File | Path:
        return self if files is None else files.directory / self.name


@dataclass(frozen=True)
class RunFiles:
    """Where a directory of certification, training or fitting has its files, whether they are there or not.

    Weights lie beside them as in any directory that ``architectures`` saves a model to.
    """

    directory: Path

    statement = _File("run.json")
    lock = _File(".lock")
    """Held by the only writer; says how many records there were."""
    journal = _File("journal.sqlite")
    """A record for each certified input."""
    sigmas = _File("sigmas.npy")
    """The scales of noise that has one for each coordinate: those certified with, or those that a fit ended in."""
    searches = _File("sigma_search.jsonl")
    """How each input's σ was found."""
    searched_sigmas = _File("sigmas")
    """A folder for those that have one for each coordinate."""
    levels = _File("levels.jsonl")
    """The votes of the chooser and of every level that was looked at, for each input."""
    chooser = _File("chooser.json")
    """The levels that a fitted chooser chooses among, and its noise."""
    pilots = _File("pilots.jsonl")
    allocation = _File("allocation.json")
    """How a total of votes is spread over the inputs."""
    answers = _File("answers.jsonl")
    """What a memory answered."""
    recipe = _File("recipe.toml")
    metrics = _File("metrics.jsonl")
    """A line for each epoch of training, or each sub-epoch of a fit."""
    checkpoint = _File("checkpoint.pt")
    steps = _File("sub-epochs")
    """A folder for the scales after each sub-epoch of a fit."""

    void = _File("void.json")
    """Why no answer of the run counts: its model was seen to answer a row by more than the row."""

    published = _File("published.json")
    """Of a run in object storage: its files with their sizes and hashes."""

    def sigmas_of(self, index: int) -> Path:
        """The scales that were found for one input."""
        return self.searched_sigmas / f"{index}.npy"

    def sigmas_after(self, sub_epoch: int) -> Path:
        """The scales of a fit after a sub-epoch (0: at the start)."""
        return self.steps / f"{sub_epoch}.npy"

    @classmethod
    def keeps(cls, name: str) -> bool:
        """Whether a certification run may have a file of this name beside its statement and its journal."""
        kept = {one.name for one in (cls.sigmas, cls.searches, cls.levels, cls.pilots, cls.allocation)}
        return name in kept or re.fullmatch(rf"{cls.searched_sigmas.name}/[0-9]+\.npy", name) is not None

    def refuse_void(self) -> None:
        """Refuse a run that was marked while it was made."""
        if self.void.is_symlink() or self.void.exists():
            try:
                reason = str(json.loads(read_file(self.void, _MOST_REASON, links=False))["reason"])
            except (DataError, OSError, ValueError, KeyError, TypeError):
                reason = "the mark itself can't be read"
            raise RunError(
                f"{self.directory} is void ({self.void.name}): its model failed a check while it was certified, so "
                f"that none of its certificates counts. {reason}"
            )

    def mark_void(self, reason: str) -> None:
        """Mark the run: every reader refuses it from now on."""
        write_atomically(self.void, json.dumps({"reason": reason}, ensure_ascii=False).encode())

    def refuse_link(self) -> None:
        """Refuse a folder of found scales that is a link: the run's maker would choose what is read."""
        if self.searched_sigmas.is_symlink():
            raise RunError(f"{self.searched_sigmas} is a link and not followed; copy the folder")

    def kept_names(self) -> list[str]:
        """Such files that are there, in order."""
        self.refuse_link()
        found = sorted([*self.directory.glob("*"), *self.searched_sigmas.glob("*")])
        names = [path.relative_to(self.directory).as_posix() for path in found if path.is_file()]
        return [name for name in names if self.keeps(name)]

    def kept(self) -> Iterator[tuple[str, bytes]]:
        """Such files with their contents; links aren't followed."""
        for name in self.kept_names():
            yield name, read_file(self.directory / name, _MOST_KEPT, links=False)


_MOST_BYTES = 2**36
_T = TypeVar("_T")


def save_checkpoint(directory: Path, content: Mapping[str, Any]) -> None:
    """Replace the checkpoint; a kill or a full disk at any moment leaves the one before."""
    import torch

    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(RunFiles(directory).checkpoint, sealed_zip(buffer.getvalue()))


def load_checkpoint(directory: Path, parse: Callable[[dict[str, Any]], _T], begin: str) -> _T | None:
    """What was saved last, parsed, or None; ``begin`` says what deleting it does. No code in the file is run."""
    from smoothcert.architectures.checkpoints import load_tensors

    path = RunFiles(directory).checkpoint
    if not path.exists():
        return None
    try:
        check_zip(read_file(path, _MOST_BYTES, links=False))
        return parse(load_tensors(path))
    # A damaged file can raise anything at all.
    except Exception as error:
        raise RunError(
            f"{path} can't be read ({type(error).__name__}): it was damaged or made by another version. Restore it, "
            f"or delete it to {begin} from the beginning"
        ) from error


_ZIP_END, _ZIP_END_SIZE = b"PK\x05\x06", 22
_ZIP_COMMENT = b"smoothcert blake2b "


def sealed_zip(content: bytes) -> bytes:
    """A zip file, which must have no comment, with its checksum as the comment: any reader of zips takes it."""
    comment = _ZIP_COMMENT + new_checksum(content).hexdigest().encode()
    return content[:-2] + len(comment).to_bytes(2, "little") + comment


def check_zip(content: bytes) -> None:
    """ValueError where a zip file isn't what :func:`sealed_zip` made. Earlier versions' have no comment at all."""
    size = len(_ZIP_COMMENT) + 2 * new_checksum(b"").digest_size
    plain = content[: -size - 2] + b"\0\0"
    if content[-size:].startswith(_ZIP_COMMENT):
        intact = sealed_zip(plain) == content
    else:
        intact = content[-_ZIP_END_SIZE:].startswith(_ZIP_END) and content.endswith(b"\0\0")
    if not intact:
        raise ValueError("its checksum doesn't match")
