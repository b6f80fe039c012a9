"""A run on disk: created once, continued only with the same statement, readable at any time."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import datasets, files
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.tables import encoded_as
from smoothcert.errors import DataError, RunError
from smoothcert.files import checksum, make_folder, open_own, read_file, write_atomically
from smoothcert.plain_text import certify_trained, shown_name
from smoothcert.runs.journal import DamagedJournalError, Journal, check_writable_place, salvage
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest, states_checksum
from smoothcert.runs.records import Records, Rows
from smoothcert.runs.statement import DataStatement

_MOST_NOTED = 100
_HELD_SHOWN = 8
_MOST_SUGGESTED = 50


@dataclass(frozen=True, repr=False)
class Run:
    """A run that was read: its statement and its records so far, ordered by index."""

    path: Path
    """Its directory."""
    manifest: Manifest
    """What was asked, of which model and data: ``manifest.plan.alpha``, say."""
    records: Records
    """What was found: columns (``records.radius``) and rows (``records[0]``)."""
    alias: str = ""
    """What a page calls it, where the directory's name won't do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", Records.of(self.records))

    def __repr__(self) -> str:
        held = self.shortfall or f"{len(self.records)} inputs"
        return f"Run({str(self.path)!r}, {self.manifest.kind}, {self.manifest.model.name}, {held})"

    @property
    def name(self) -> str:
        """The directory's name, marked if the answers came out of a memory: they promise something else."""
        name = shown_name(self.alias or self.path.resolve().name)
        return f"{name} (stateful)" if self.stateful else name

    @property
    def stateful(self) -> bool:
        """Whether the answers depend on what a memory was asked before."""
        return self.manifest.subject == "memory"

    @property
    def norm(self) -> str:
        """The norm of its radii; a run that states none has no radii to compare.

        Of changes that leave some coordinates alone it is another norm, and named so.
        """
        if (norm := self.manifest.plan.norm) is None:
            raise RunError(f"{self.path} states no norm: it is not a certification; name one that is")
        held = self.manifest.model.held
        return norm if held is None else f"{norm} ({_held_in_words(held)})"

    def check_begun(self) -> None:
        """Refuse a run without a single record."""
        if not self.records:
            raise RunError(f"{self.path}: no input has been certified yet; run the certification first")

    @property
    def planned(self) -> Sequence[int] | None:
        """The inputs that the run was asked for, ascending; None where its statement doesn't say."""
        return self.manifest.data.asked_for

    @property
    def complete(self) -> bool:
        """Whether it is known to hold every input it was asked for, and no other.

        A run that doesn't say what was asked for is complete only if it holds all that its data allow.
        """
        asked = self.planned if self.manifest.data.has(DataStatement.planned) else self.manifest.data.allowed
        return (
            asked is not None
            and len(asked) == len(self.records)
            and bool((self.records.index == np.asarray(asked)).all())
        )

    @property
    def shortfall(self) -> str | None:
        """What a run that isn't known to be complete holds, in words; None for a complete one."""
        if self.complete:
            return None
        done, asked = len(self.records), self.planned
        if asked is not None and set(self.records.index.tolist()) <= set(asked):
            return f"{done} of the {len(asked)} inputs asked for so far"
        if asked is not None:
            return f"{done} inputs, others than the {len(asked)} asked for among them"
        if self.manifest.kind == "import" and self.manifest.data.has(DataStatement.planned):
            return f"{done} inputs of a log that was cut off"
        allowed = self.manifest.data.allowed
        of = "" if allowed is None else f" of {len(allowed)}"
        return f"{done}{of} inputs so far; it doesn't say how many were asked for"


def unique_names(paths: Sequence[Path]) -> list[str]:
    """The shortest names that tell directories apart: ``a`` and ``b`` for ``x/a/certified`` and ``x/b/certified``.

    A directory given twice gets a number.
    """
    reversed_parts = [path.resolve().parts[::-1] for path in paths]
    names = [parts[0] for parts in reversed_parts]
    for name in sorted({name for name in names if names.count(name) > 1}):
        places = [place for place, other in enumerate(names) if other == name]
        folders = {reversed_parts[place] for place in places}
        longest = max(map(len, folders))
        first = next((k for k in range(longest) if len({parts[k : k + 1] for parts in folders}) > 1), 0)
        last = next(
            k for k in range(first + 1, longest + 1) if len({parts[:k] for parts in folders}) == len(folders)
        )
        short = {place: "/".join(reversed(reversed_parts[place][first:last])) for place in places}
        if {*short.values()} & {*names} - {name}:
            short = {place: "/".join(reversed(reversed_parts[place][:last])) for place in places}
        for place in places:
            names[place] = short[place]
    shown = [shown_name(name) for name in names]
    counted = ((name, shown.count(name), shown[:k].count(name) + 1) for k, name in enumerate(shown))
    return [name if times == 1 else f"{name} ({number})" for name, times, number in counted]


def read_run(path: Path) -> Run:
    """Read a run, finished or not."""
    if not path.is_dir():
        raise RunError(f"{path} is not a run: no such directory")
    if not RunFiles(path).statement.exists() and (inside := _runs_inside(path)) is not None:
        raise RunError(f"{path} is not a run, it holds some: name them, {inside}")
    manifest = Manifest.load(path)
    if manifest.kind == "train":
        named, noisy = manifest.origin.dataset or manifest.data.name, manifest.plan.sigma != 0
        named = None if named in DATASETS else named
        command = certify_trained(path, named, manifest.origin.data_dir, noisy=noisy)
        raise RunError(f"{path} is a training run: certify its model first, `{command}`")
    if manifest.kind == "fit-noise":
        raise RunError(f"{path} is a fit of noise: certify with it first (--noise {path})")
    if manifest.kind == "fit-levels":
        raise RunError(f"{path} is a chooser of levels: certify with it first (--chooser {path})")
    # Before the journal, which may be growing: it has at least as many.
    at_least = _noted_records(path)
    file = RunFiles(path).journal
    with Journal(file, statement=manifest.seal, at_least=at_least) as journal:
        records = journal.records()
    if not len(records) and not file.stat().st_size and not file.with_name(f"{file.name}-wal").exists():
        raise RunError(f"{file} is empty: nothing was certified into it yet, or what it held was cut off")
    return Run(path, manifest, records)


def _runs_inside(path: Path) -> str | None:
    """Words for a command line that name the certified runs in a folder; None where there are none."""
    name = RunFiles(path).statement.name
    for pattern in ("*", "*/certified"):
        folders = sorted(file.parent for file in path.glob(f"{pattern}/{name}"))[:_MOST_SUGGESTED]
        certified = [folder for folder in folders if _is_certified(folder)]
        if certified:
            named = [path / pattern] if certified == folders else certified
            return " ".join(shown_name(str(each)) for each in named)
    return None


def _is_certified(path: Path) -> bool:
    with contextlib.suppress(RunError):
        return Manifest.load(path).kind in ("certify", "import")
    return False


@contextmanager
def open_run(path: Path, manifest: Manifest) -> Iterator[Journal]:
    """Create a certification run, or continue it; what :func:`claim_run` refuses is refused.

    Records that are damaged or lost are missing from the journal, so that the caller makes them again.
    """
    check_writable_place(path)
    with _only_writer(path) as lock, _writable_journal(path, lock, _settled(path, manifest)) as journal:
        yield journal


@contextmanager
def claim_run(path: Path, manifest: Manifest) -> Iterator[None]:
    """Be the only writer of a run, made now or before with the same statement; else say what differs."""
    with _only_writer(path):
        _settled(path, manifest)
        yield


@contextmanager
def reserve_run(path: Path) -> Iterator[Callable[[Manifest, Rows, Mapping[str, bytes]], None]]:
    """Be the only writer of a directory whose statement isn't known yet; what comes is called to write it, once."""
    check_writable_place(path)
    with _only_writer(path) as lock:
        yield lambda manifest, records, files: _write_whole(path, lock, manifest, records, files)


def create_run(
    path: Path, manifest: Manifest, records: Rows, files: Mapping[str, bytes] | None = None
) -> None:
    """Write a complete run, with the ``files`` it keeps beside its journal, in a directory that holds none yet.

    One that a kill or a full disk left unfinished is resumed. Records come last: one that counts has its files.
    """
    with reserve_run(path) as write:
        write(manifest, records, files or {})


def _write_whole(
    path: Path, lock: int, manifest: Manifest, records: Rows, files: Mapping[str, bytes]
) -> None:
    try:
        for name, content in files.items():
            _check_own(path / name, content)
        stated = _settled(path, manifest)
    except RunError as error:
        if not RunFiles(path).statement.exists():
            raise
        raise RunError(f"{path} holds a run already; choose another --out ({error})") from None
    for name, content in files.items():
        make_folder((path / name).parent)
        if not (path / name).exists():
            write_atomically(path / name, content)
    with _writable_journal(path, lock, stated) as journal:
        there = {record.index: record for record in journal.records()}
        if there:
            wanted = {record.index: record for record in records if record.index in there}
            if len(there) >= len(records) or wanted != there:
                raise RunError(f"{path} holds a run already; choose another --out")
        journal.append_all(record for record in records if record.index not in there)


def _check_own(path: Path, content: bytes) -> None:
    if path.is_symlink() or path.exists():
        try:
            same = read_file(path, len(content), links=False) == content
        except (OSError, DataError):
            same = False
        if not same:
            raise RunError(f"{path} is there already; choose another --out")


def _settled(path: Path, manifest: Manifest) -> Manifest:
    if RunFiles(path).statement.exists():
        stated = Manifest.load(path)
        differences = stated.differences(manifest)
        if differences:
            raise RunError(
                f"{path} can't be continued, because it was started with another statement:\n  "
                + "\n  ".join(differences)
                + "\nChoose another --out, or give the options it was started with."
            )
        return stated
    if RunFiles(path).journal.exists():
        raise RunError(f"{path} has no {RunFiles.statement.name}: restore it or choose another --out")
    manifest.save(path)
    return manifest


@contextmanager
def _writable_journal(path: Path, lock: int, stated: Manifest) -> Iterator[Journal]:
    """The journal to write to, with the number of its records noted in the file that ``lock`` holds.

    What a write-ahead file held is lost with it, and nothing else would tell.
    """
    file, seal = RunFiles(path).journal, stated.seal

    def opened() -> Journal:
        return Journal(file, True, seal, _noted_records(path), lambda count: _note_records(lock, count))

    try:
        journal = opened()
    except DamagedJournalError:
        if not states_checksum(path):  # of an earlier version: nothing tells which of its records are intact
            raise
        salvage(file, seal)
        journal = opened()
    with journal:
        yield journal


def _note_records(lock: int, count: int) -> None:
    """Not waited for: it may be behind the journal after a loss of power, but never ahead of it."""
    with contextlib.suppress(OSError):
        os.pwrite(lock, _note(count), 0)


def _noted_records(path: Path) -> int:
    try:
        text = read_file(RunFiles(path).lock, _MOST_NOTED, links=False)
        count = int(text.split()[0])
    except (OSError, DataError, ValueError, IndexError):
        return 0
    return count if text == _note(count) else 0


def _note(count: int) -> bytes:
    return f"{count:016d} {checksum(count)}\n".encode()


@contextmanager
def _only_writer(path: Path) -> Iterator[int]:
    """Make the directory and hold the run's lock; it goes with the process, however that ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} can't be made: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunError(f"{path} can't be written to: permission denied")
    try:
        lock = open_own(RunFiles(path).lock, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise RunError(f"{path} can't be written to: {RunFiles.lock.name}: {error.strerror}") from None
    try:
        try:
            files.lock(lock, wait=False)
        except BlockingIOError:
            raise RunError(f"{path}: another process is writing it; wait or choose another --out") from None
        except OSError as error:
            raise RunError(
                f"{path}: this file system refuses locks ({error.strerror}), so that two processes could write one "
                "run; choose a local disk, and copy the finished run there"
            ) from None
        yield lock
    finally:
        os.close(lock)


def _held_in_words(held: Sequence[int]) -> str:
    shown = ", ".join(map(str, held[:_HELD_SHOWN]))
    if len(held) > _HELD_SHOWN:
        shown += f", … {len(held)} in all, {checksum(list(held))[:6]}"
    return f"held: {shown}"


def check_inputs_of(run: Run, dataset: Dataset) -> None:
    """Refuse a data set with other contents than the run states."""
    data = run.manifest.data
    dataset.check_contents(data.sha256, f"{run.path} ({data.name}, {data.inputs} inputs)")


def inputs_fitted_on(dataset: Dataset, indices: range) -> dict[str, Any]:
    """What a fit states of its data."""
    return {
        "name": dataset.name,
        "sha256": dataset.fingerprint(),
        "inputs": len(dataset),
        "skip": indices.step,
        "used": len(indices),
        "dimension": math.prod(dataset.input_shape),
    }


def registered_dataset(manifest: Manifest) -> str | None:
    """The data set that the run states, if it is a registered name and no path; the user says where its files are."""
    stated = manifest.origin.dataset or manifest.data.name
    return stated if stated in DATASETS else None


def suggested_options(**places: str | None) -> str:
    """What a run says of where things were, as options for readers who trust it."""
    given = {name: value for name, value in places.items() if value is not None}
    return shlex.join(
        word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", shown_name(value))
    )


def open_inputs_of(
    run: Run, dataset: str | None = None, split: str | None = None, data_dir: Path | None = None
) -> Dataset:
    """The data set the user names, else the registered one that the run states; the caller checks its contents."""
    origin = run.manifest.origin
    spec = dataset or registered_dataset(run.manifest)
    if spec is None:
        named = suggested_options(dataset=origin.dataset or run.manifest.data.name or "DATASET")
        raise DataError(
            f"{run.path} names a data set by its path, and nothing that a run names is opened unasked. If that is the "
            f"one you mean, add: {named}"
        )
    try:
        found = datasets.load(spec, split or origin.split or "test", data_dir)
        return encoded_as(found, run.manifest.plan.as_json())
    except DataError as error:
        if data_dir is not None or origin.data_dir is None:
            raise
        hint = suggested_options(data_dir=origin.data_dir)
        raise DataError(f"{error}. {run.path} was made with {hint}: give that to open it") from None
