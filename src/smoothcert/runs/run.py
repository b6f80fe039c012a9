"""A run on disk: created once, continued only with the same statement, readable at any time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.files import open_own
from smoothcert.plain_text import shown_name
from smoothcert.runs import journal as journals
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import FILE_NAME as MANIFEST_NAME
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record

_LOCK_NAME = ".lock"


@dataclass(frozen=True)
class Run:
    """A run that was read: its statement and its records so far, ordered by index."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The directory's name, marked if the answers came out of a memory: they promise something else."""
        name = shown_name(self.path.resolve().name)
        return f"{name} (stateful)" if self.stateful else name

    @property
    def stateful(self) -> bool:
        """Whether the answers depend on what a memory was asked before."""
        return self.manifest.subject == "memory"

    @property
    def planned(self) -> Sequence[int] | None:
        """The inputs that the run was asked for, ascending; None where its statement doesn't say."""
        return self.manifest.planned

    @property
    def complete(self) -> bool:
        """Whether it is known to hold every input it was asked for, and no other.

        A run that doesn't say what was asked for is complete only if it holds all that its data allow.
        """
        asked = self.planned if "planned" in self.manifest.data else self.manifest.allowed
        return (
            asked is not None
            and len(asked) == len(self.records)
            and all(index == record.index for index, record in zip(asked, self.records))
        )

    @property
    def shortfall(self) -> str | None:
        """What a run that isn't known to be complete holds, in words; None for a complete one."""
        if self.complete:
            return None
        done, asked = len(self.records), self.planned
        if asked is not None and {record.index for record in self.records} <= set(asked):
            return f"{done} of the {len(asked)} inputs asked for so far"
        if asked is not None:
            return f"{done} inputs, others than the {len(asked)} asked for among them"
        if self.manifest.kind == "import" and "planned" in self.manifest.data:
            return f"{done} inputs of a log that was cut off"
        allowed = self.manifest.allowed
        of = "" if allowed is None else f" of {len(allowed)}"
        return f"{done}{of} inputs so far; it doesn't say how many were asked for"


def read_run(path: Path, tallies: bool = True) -> Run:
    """Read a run, finished or not. Without ``tallies`` (they are None) several times as fast: enough for accuracies."""
    if not path.is_dir():
        raise RunError(f"{path} is not a run: no such directory")
    manifest = Manifest.load(path)
    if manifest.kind == "train":
        raise RunError(
            f"{path} is a training run: certify its model first (smoothcert certify {path} --out …)"
        )
    if manifest.kind == "fit-noise":
        raise RunError(
            f"{path} is a fit of noise: certify with it first (smoothcert certify MODEL --noise {path} --out …)"
        )
    with Journal(path / journals.FILE_NAME) as journal:
        return Run(path, manifest, tuple(journal.records(tallies)))


@contextmanager
def open_run(path: Path, manifest: Manifest) -> Iterator[Journal]:
    """Create a certification run, or continue it; what :func:`claim_run` refuses is refused."""
    with claim_run(path, manifest), Journal(path / journals.FILE_NAME, writable=True) as journal:
        yield journal


@contextmanager
def claim_run(path: Path, manifest: Manifest) -> Iterator[None]:
    """Be the only writer of a run, made now or before with the same statement; else say what differs."""
    _make_directory(path)
    with _only_writer(path):
        if (path / MANIFEST_NAME).exists():
            differences = Manifest.load(path).differences(manifest)
            if differences:
                raise RunError(
                    f"{path} can't be continued, because it was started with another statement:\n  "
                    + "\n  ".join(differences)
                    + "\nChoose another --out, or give the options it was started with."
                )
        else:
            if (path / journals.FILE_NAME).exists():
                raise RunError(
                    f"{path} holds a journal but no {MANIFEST_NAME}: restore it or choose another --out"
                )
            manifest.save(path)
        yield


def create_run(path: Path, manifest: Manifest, records: list[Record]) -> None:
    """Write a complete run in a directory that holds none yet."""
    if (path / MANIFEST_NAME).exists():
        raise RunError(f"{path} holds a run already; choose another --out")
    with open_run(path, manifest) as journal:
        journal.append_all(records)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} can't be made: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunError(f"{path} can't be written to: permission denied")


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Hold the run's lock; it goes with the process, however that ends."""
    try:
        lock = open_own(path / _LOCK_NAME, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise RunError(f"{path} can't be written to: {_LOCK_NAME}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(
                f"{path}: another process is writing this run; wait for it or choose another --out"
            ) from None
        yield
    finally:
        os.close(lock)
