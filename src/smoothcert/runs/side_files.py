"""Files beside a run's journal: single JSON objects, and lines of JSON with one dataclass each.

An object or a line has a checksum of its fields. Files are replaced in one step, lines are on disk before they count:
a record that counts has its lines. A line that a kill cut off, or that is damaged, is left out by readers, so that its
input is done again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from smoothcert.errors import DataError, RunError, SmoothcertError
from smoothcert.files import (
    MOST_TEXT,
    append_line,
    is_sealed,
    make_folder,
    parse_json,
    read_file,
    read_lines,
    sealed,
    unsealed,
    write_atomically,
)
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES, DiagonalNoise, load_sigmas, write_sigmas
from smoothcert.plain_text import shown_name
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import UNREADABLE
from smoothcert.tally import Tally

T = TypeVar("T")
_NOT_KEPT = {"kept": False}
"""Metadata of fields that follow from others, and have no place in a line."""


def append_sealed(path: Path, stated: Mapping[str, Any]) -> None:
    """Add a line with its checksum and wait until it is on disk."""
    append_line(path, json.dumps(sealed(stated)))


def read_sealed(path: Path, always: bool = False) -> Iterator[dict[str, Any]]:
    """The lines that are what was written.

    Earlier versions wrote some files without checksums, whose lines are taken as they are unless ``always``.
    """
    for line in read_lines(path):
        try:
            stated = parse_json(line)
            values = unsealed(stated)
        except ValueError:
            continue
        if is_sealed(stated) or not always:
            yield values


def read_parsed(path: Path, parse: Callable[[dict[str, Any]], T], always: bool = False) -> Iterator[T]:
    """What the lines of :func:`read_sealed` say; one that ``parse`` can't understand is left out as well."""
    for values in read_sealed(path, always):
        try:
            item = parse(values)
        except UNREADABLE:
            continue
        yield item


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by a line for each row, in one step."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def encoded(item: Any) -> Any:
    """A dataclass, a tally or a tuple of them in plain values."""
    if isinstance(item, Tally):
        return item.as_json()
    if isinstance(item, tuple):
        return list(map(encoded, item))
    if not is_dataclass(item):
        return item
    return {each.name: encoded(getattr(item, each.name)) for each in _kept(type(item))}


def decoded(kind: type[T], value: Any) -> T:
    """The inverse of :func:`encoded`, by the types of the fields: true isn't 1, and 1.0 isn't a whole number.

    One of :data:`~smoothcert.runs.records.UNREADABLE` for anything else.
    """
    result: T = _decoded(kind, value)
    return result


def _decoded(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (some,) = (one for one in inner if one is not NoneType)
        return None if value is None else _decoded(some, value)
    if origin is tuple and isinstance(value, list):
        return tuple(_decoded(inner[0], one) for one in value)
    if kind is Tally:
        return Tally.from_json(value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        kept, hints = _kept(kind), _hints(kind)
        required = {each.name for each in kept if each.default is MISSING}
        if not required <= value.keys() <= {each.name for each in kept}:
            raise ValueError(f"it has other fields than {', '.join(each.name for each in kept)}")
        return kind(**{name: _decoded(hints[name], one) for name, one in value.items()})
    kinds = (int, float) if kind is float else (kind,)
    if not (value in inner if origin is Literal else type(value) in kinds):
        raise ValueError(f"{value!r} where {kind} is expected")
    return value


def _kept(kind: Any) -> list[Any]:
    return [each for each in fields(kind) if each.metadata != _NOT_KEPT]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


ValidationInputs = Literal["holdout", "test", "train"]

_HUGE = 1e100  # far above any figure of a training, far below what a picture's axis can hold
_LIMITS = {
    "epoch": (1, 10**9),
    "loss": (-_HUGE, _HUGE),  # an objective's own may be negative
    "accuracy": (0.0, 1.0),
    "learning_rate": (0.0, _HUGE),
    "seconds": (0.0, _HUGE),
    "acr": (0.0, _HUGE),
    "acr_inputs": (1, 10**9),
    "acr_votes": (1, 10**9),
    "sigma": (0.0, _HUGE),
}
_NORM = re.compile(r"[a-z0-9-]{1,20}")


@dataclass(frozen=True)
class EpochMetrics:
    """What one epoch did; ``accuracy`` is that of the base classifier after it, on noisy validation inputs.

    ``acr`` is that of an :class:`~smoothcert.training.AcrCheck`, where one was made, of ``acr_inputs`` inputs with
    ``acr_votes`` votes each; ``seconds`` are without it. Both are measured at ``sigma``, the plan's, with noise that
    certifies ``norm``. Files of earlier versions don't state the last four; their accuracy was measured at the σ that
    a ramp had reached.
    """

    epoch: int
    loss: float
    accuracy: float
    validated_on: ValidationInputs
    learning_rate: float
    seconds: float
    acr: float | None = None
    acr_inputs: int | None = None
    acr_votes: int | None = None
    sigma: float | None = None
    norm: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The figures there are."""
        return {name: value for name, value in encoded(self).items() if value is not None}


def write_epochs(directory: Path, history: Iterable[EpochMetrics]) -> None:
    """Replace the lines of a training run."""
    write_lines(RunFiles(directory).metrics, map(EpochMetrics.as_json, history))


def read_epochs(directory: Path) -> tuple[EpochMetrics, ...]:
    """The epochs of a training run so far, without lines that are damaged; refused where there is none."""
    files = RunFiles(directory)
    files.refuse_link()
    if not files.metrics.is_file():
        raise RunError(f"{directory} holds no {files.metrics.name}: name the directory of a training run")
    epochs: list[EpochMetrics] = []
    for metrics in read_parsed(files.metrics, _metrics):
        if not epochs or metrics.epoch > epochs[-1].epoch:  # training goes one way
            epochs.append(metrics)
    if not epochs:
        raise RunError(f"{files.metrics} has no epoch that can be read")
    return tuple(epochs)


def trained_on(directory: Path) -> str | None:
    """The data set that a training run states; None where its statement is missing or can't be read."""
    try:
        name = Manifest.load(directory).data.name
    except (OSError, RunError):
        return None
    return shown_name(name) if name else None


def _metrics(stated: dict[str, Any]) -> EpochMetrics:
    metrics = decoded(EpochMetrics, stated)
    for name, (least, most) in _LIMITS.items():
        value = getattr(metrics, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} can't be {value!r}")
    if metrics.norm is not None and not _NORM.fullmatch(metrics.norm):
        raise ValueError(f"norm can't be {metrics.norm!r}")
    return metrics


Reason = Literal["improved", "unchecked", "no gain", "abstains", "not finite", "out of range"]
"""Why σ is what it is; for all but the first two, σ₀ was kept.

``unchecked``: where the search ended, not compared with σ₀. ``no gain``: no other σ promised more.
``abstains``: search votes at σ₀ wouldn't be certified. ``not finite``: the model's gradient wasn't a number.
``out of range``: σ ran to 0 or beyond the largest factor.
"""


@dataclass(frozen=True)
class SearchResult:
    """A search's answer for one input: its σ, and the radii that search votes promised at σ₀ and there.

    Where it found a scale for each coordinate, that is ``noise``; σ is then their geometric mean, and the radius that
    of the ball of the region's volume.
    """

    index: int
    sigma: float
    reason: Reason
    start_radius: float | None
    radius: float | None
    """None where the search ended before any vote."""
    evaluations: int
    """Rows that went through the network, forward and backward passes counted alike."""
    noise: DiagonalNoise | None = field(default=None, metadata=_NOT_KEPT)

    def noise_like(self, noise: Noise) -> Noise:
        """What to certify with, where the search began with ``noise``."""
        return NOISES[noise.kind](self.sigma) if self.noise is None else self.noise

    def drawn(self, noise: Noise) -> SearchResult:
        """The same with the scales that a sampler makes of those found, where it has too few for all of them."""
        return replace(self, sigma=noise.sigma, noise=noise) if isinstance(noise, DiagonalNoise) else self


def append_search(directory: Path, result: SearchResult) -> None:
    """Add a line; the scales of an input that has one for each coordinate go to ``sigmas/INDEX.npy`` before."""
    files, stated = RunFiles(directory), encoded(result)
    if result.noise is not None:
        make_folder(files.searched_sigmas)
        write_sigmas(files.sigmas_of(result.index), result.noise.sigmas)
        stated |= {"noise": result.noise.name, "sigmas_sha256": result.noise.sha256}
    append_sealed(files.searches, stated)


def read_searches(directory: Path) -> dict[int, SearchResult]:
    """Every input's search by index, without those whose line was cut off or damaged, or whose scales are."""
    files = RunFiles(directory)
    files.refuse_link()
    results: dict[int, SearchResult] = {}
    for stated in read_sealed(files.searches):
        name, sha256 = stated.pop("noise", None), stated.pop("sigmas_sha256", None)
        try:
            result = decoded(SearchResult, stated)
            if result.index < 0:  # it names a file
                continue
        except UNREADABLE:
            continue
        results.pop(result.index, None)
        if sha256 is not None and isinstance(name, str):
            try:
                noise = DIAGONAL_NOISES[name](load_sigmas(files.sigmas_of(result.index)))
            except SmoothcertError:
                continue
            if noise.sha256 != sha256:
                continue
            result = replace(result, noise=noise)
        results[result.index] = result
    return results


def searches_in_words(results: Iterable[SearchResult], start: float) -> str:
    """How many inputs moved, how many kept σ₀ and why."""
    results = list(results)
    moved = [result.sigma for result in results if result.reason in ("improved", "unchecked")]
    reasons = Counter(result.reason for result in results).most_common()
    kept = [f"{count} {reason}" for reason, count in reasons if reason not in ("improved", "unchecked")]
    span = f" to σ = {min(moved):.3g} … {max(moved):.3g}" if moved else ""
    return (
        f"σ search: {len(moved)} of {len(results)} inputs moved{span}; σ = {start:g} kept: "
        f"{', '.join(kept) or 'none'}"
    )


@dataclass(frozen=True)
class Piloted:
    """The votes that come before an allocation: they choose a class, and say what it may be worth.

    ``pilot`` is None where the class isn't the label: no vote more is spent on it.
    """

    selection: Tally
    pilot: Tally | None

    @property
    def chosen(self) -> int:
        """The class that the selection votes chose."""
        return self.selection.top()

    @property
    def n(self) -> int:
        """All votes."""
        return self.selection.n + (0 if self.pilot is None else self.pilot.n)


def append_pilot(directory: Path, index: int, piloted: Piloted) -> None:
    """Add a line."""
    append_sealed(RunFiles(directory).pilots, {"index": index, **encoded(piloted)})


def read_pilots(directory: Path) -> dict[int, Piloted]:
    """The pilots by index; one whose line is lost is cast again, with the same votes."""
    return dict(
        read_parsed(RunFiles(directory).pilots, lambda line: (int(line.pop("index")), decoded(Piloted, line)))
    )


def write_allocation(directory: Path, total: int, spent_before: int, votes: Mapping[int, int]) -> None:
    """Keep how a total is spread over inputs.

    It is on disk before the first certifying vote is drawn, so that n is a constant to those votes however often the
    run is killed.
    """
    by_index = {str(index): n for index, n in votes.items()}
    stated = sealed({"total": total, "spent_before": spent_before, "votes": by_index})
    write_atomically(RunFiles(directory).allocation, (json.dumps(stated, indent=1) + "\n").encode())


def read_allocation(directory: Path, indices: Iterable[int]) -> dict[int, int] | None:
    """Votes for each input, None where a total isn't spread yet; refuses one that was spread over other inputs."""
    path, wanted = RunFiles(directory).allocation, list(indices)
    if not path.exists():
        return None
    try:
        stated = unsealed(parse_json(read_file(path, MOST_TEXT, links=False)))
        if stated.keys() != {"total", "spent_before", "votes"}:
            raise ValueError("it has other fields")
        votes = {int(index): int(n) for index, n in stated["votes"].items()}
    except (OSError, DataError, *UNREADABLE):
        raise RunError(
            f"{path} is damaged; restore it, or delete it and rerun the same command: {RunFiles.pilots.name} gives the "
            "same numbers"
        ) from None
    if sorted(votes) != sorted(wanted):
        raise RunError(
            f"{path} spreads the votes over {len(votes)} inputs, and not over the {len(wanted)} asked for: a total is "
            "for the inputs it was spread over; give the same --every and --max, or another --out"
        )
    return votes


@dataclass(frozen=True)
class LevelVotes:
    """The votes cast at one σ level: those that chose its class, and those that bounded it."""

    level: int
    selection: Tally
    estimation: Tally
    stopped: str | None = None


@dataclass(frozen=True)
class LevelEvidence:
    """One input's votes: of the chooser of σ levels (None where it is constant), and at each level that was evaluated.

    ``home`` is the level that the chooser's selection votes gave; its votes are the first of ``votes``. ``chooser`` is
    None where there was nothing left to find out: the home level itself certified nothing.
    """

    index: int
    home: int
    chosen: Tally | None
    chooser: Tally | None
    votes: tuple[LevelVotes, ...]
    reaches: tuple[float, ...] = field(default=(), metadata=_NOT_KEPT)
    """How far away the median can't become each level; 0 where nothing is known, inf where it never is."""
    radii: tuple[float, ...] = field(default=(), metadata=_NOT_KEPT)
    """How far each level answers the class; 0 for levels that weren't evaluated."""

    @property
    def limit(self) -> str:
        """What keeps the radius from being larger: ``home``, another ``level``, or the ``chooser``."""
        bounded = list(map(max, self.reaches, self.radii))
        level = bounded.index(min(bounded))
        if bounded[self.home] == bounded[level]:
            return "home"
        return "level" if self.radii[level] > self.reaches[level] else "chooser"

    @property
    def certified(self) -> tuple[int, ...]:
        """The levels that were evaluated."""
        return tuple(sorted(part.level for part in self.votes))

    @property
    def n(self) -> int:
        """All votes, the chooser's included."""
        tallies = [self.chosen, self.chooser]
        tallies += [tally for part in self.votes for tally in (part.selection, part.estimation)]
        return sum(tally.n for tally in tallies if tally is not None)


def append_evidence(directory: Path, evidence: LevelEvidence) -> None:
    """Add a line."""
    append_sealed(RunFiles(directory).levels, encoded(evidence))


def read_evidence(directory: Path) -> dict[int, LevelEvidence]:
    """Every input's evidence by index."""
    lines = read_parsed(RunFiles(directory).levels, _evidence, always=True)
    return {evidence.index: evidence for evidence in lines}


def missing_line(directory: Path, index: int) -> RunError:
    """What readers say of a record whose votes are lost or damaged."""
    return RunError(
        f"{RunFiles(directory).levels.name} has no intact line of input {index} in {directory}: rerun the original "
        "command, which casts those votes again, or restore the file"
    )


def _evidence(stated: dict[str, Any]) -> LevelEvidence:
    evidence = decoded(LevelEvidence, stated)
    if min(evidence.index, evidence.home, *(part.level for part in evidence.votes)) < 0:
        raise ValueError("an index or a level is negative")
    return evidence
