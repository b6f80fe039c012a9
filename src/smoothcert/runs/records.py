"""Records: what a run keeps of each input, as rows and as the columns that figures are computed from."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RunError
from smoothcert.plain_text import shown_name
from smoothcert.tally import ABSTAIN, SOFT_UNIT, Phase, Tally

MOST_INPUTS = 2**53
MOST_CLASSES = 100_000
FARTHEST = 1e50
LONGEST_SECONDS = 1e15
"""What an input's number, a class, a radius or σ, and a time can be at most: beyond, a record is damaged or hostile."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
"""What values of another kind than they should be may raise where they are read."""

UNKNOWN = -2
"""In place of a class that isn't stated, or where there is none."""

SHOWN_CLASSES = 4
"""Classes with a piece of their own in a votes bar; the others share one."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Record:
    """One certified input. ``radius`` is in full precision, 0 when abstained; ``seconds`` is the worker time that its
    votes took.

    Tallies, and the base classifier's class for the input without noise, are None for results imported from another
    tool's log, which has none. Where the certified region isn't a ball, ``radius`` is that of the largest ball inside
    and ``volume_radius`` that of the ball with the same volume. ``stopped`` says why voting ended, where the plan lets
    it end early.
    """

    index: int
    label: int
    predicted: int
    radius: float
    sigma: float
    seconds: float
    selection: Tally | None = None
    estimation: Tally | None = None
    base: int | None = None
    volume_radius: float | None = None
    stopped: str | None = None

    @property
    def abstained(self) -> bool:
        """Whether nothing was certified."""
        return self.predicted == ABSTAIN

    @property
    def correct(self) -> bool:
        """Whether the certified class is the label; an abstention is not."""
        return self.predicted == self.label and not self.abstained


_NAMES = [each.name for each in fields(Record)]
_LIMITS: dict[str, tuple[type, float, float]] = {
    "index": (int, 0, MOST_INPUTS),
    "label": (int, 0, MOST_CLASSES),
    "predicted": (int, ABSTAIN, MOST_CLASSES),
    "radius": (float, 0.0, FARTHEST),
    "sigma": (float, 0.0, FARTHEST),
    "seconds": (float, 0.0, LONGEST_SECONDS),
    "base": (int, 0, MOST_CLASSES),
    "volume_radius": (float, 0.0, FARTHEST),
}
_OPTIONAL: dict[str, float] = {"base": UNKNOWN, "volume_radius": math.nan}
"""With what stands in a column for a value that isn't stated."""
_LONGEST_REASON = 1000


def _senseless(name: str, values: Sequence[Any]) -> int | None:
    """The place of the first value that no record has in this column; None where all may be right."""
    if name in _LIMITS:
        kind, least, most = _LIMITS[name]
        kinds = {kind, NoneType} if name in _OPTIONAL else {kind}
        if set(map(type, values)) <= kinds:
            numbers = np.array([value for value in values if value is not None])
            if not numbers.size or (numbers.min() >= least and numbers.max() <= most):
                return None
        bad = (type(value) not in kinds or not (value is None or least <= value <= most) for value in values)
    elif name == "stopped":
        bad = (
            not (value is None or (type(value) is str and len(value) <= _LONGEST_REASON)) for value in values
        )
    else:
        bad = (type(value) not in (str, Tally, NoneType) for value in values)
    return next((place for place, is_bad in enumerate(bad) if is_bad), None)


def check_votes(record: Record) -> None:
    """ValueError for an answer or votes that are of other classes than the votes they rest on."""
    widths = [len(tally.counts) for tally in (record.selection, record.estimation) if tally is not None]
    if widths and (widths[0] != widths[-1] or record.predicted >= widths[0]):
        raise ValueError(f"input {record.index} has an answer or votes of other classes than its votes")


def results_digest(records: Iterable[Record]) -> str:
    """SHA-256 over everything but the time: equal digests mean equal results to the last bit."""
    return Records.of(records).digest


def _digested(record: Record, selection: str, estimation: str) -> bytes:
    stated = [record.index, record.label, record.predicted, record.radius.hex(), record.sigma.hex()]
    after: list[object] = [record.base]
    # Only where they are stated: digests of plain runs stay what they were.
    if record.volume_radius is not None or record.stopped is not None:
        after += [record.volume_radius and record.volume_radius.hex(), record.stopped]
    return f"{json.dumps(stated)[:-1]}, {selection}, {estimation}, {json.dumps(after)[1:]}".encode()


_NUMBER = "(?:0|[1-9][0-9]*)"
_NUMBERS = rf"\[({_NUMBER}(?:, {_NUMBER})*)\]"
_PLAIN_TALLY = re.compile(
    rf'\{{"seed": {_NUMBER}, "index": {_NUMBER}, "phase": "(?:{"|".join(phase.name.lower() for phase in Phase)})", '
    rf'"start": {_NUMBER}, "counts": {_NUMBERS}(?:, "sums": {_NUMBERS}, "squares": {_NUMBERS})?\}}'
)
"""A tally's JSON as :func:`json.dumps` writes it, recognised undecoded: a page may be about a million of them."""


def _tally_text(tally: Tally | str | None) -> str | None:
    """What a digest takes of a tally; None for text that the tally it decodes to wouldn't be written as."""
    if isinstance(tally, str):
        return tally if _PLAIN_TALLY.fullmatch(tally) else None
    return "null" if tally is None else json.dumps(tally.as_json())


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a run, ordered by index.

    ``base`` is :data:`UNKNOWN` and ``volume_radius`` NaN where they aren't stated. Tallies are kept as the JSON they
    were read as and decoded in the row view, because few figures need them and a million may be open at once.
    """

    index: Ints
    label: Ints
    predicted: Ints
    radius: Floats
    sigma: Floats
    seconds: Floats
    base: Ints
    volume_radius: Floats
    stopped: NDArray[np.object_]
    selection: NDArray[np.object_]
    estimation: NDArray[np.object_]
    source: Path | None = None
    """The file they came from, which errors name."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Records:
        """Columns of records at hand, put in order."""
        if isinstance(records, Records):
            return records
        ordered = sorted(records, key=lambda record: record.index)
        return cls._made({name: [getattr(record, name) for record in ordered] for name in _NAMES})

    @classmethod
    def read(cls, columns: Mapping[str, Sequence[Any]], source: Path) -> Records:
        """From columns of a file, in order, whose tallies may be JSON; ValueError for values that no record has.

        Figures are computed from them. Votes are checked where they are decoded.
        """
        for name, values in columns.items():
            if name in _NAMES and (place := _senseless(name, values)) is not None:
                index = shown_name(repr(columns["index"][place])[:20])
                raise ValueError(f"{name} of input {index} can't be {shown_name(repr(values[place])[:40])}")
        return cls._made({name: columns.get(name, ()) for name in _NAMES}, source)

    @classmethod
    def _made(cls, columns: dict[str, Sequence[Any]], source: Path | None = None) -> Records:
        made: dict[str, NDArray[Any]] = {}
        for name, values in columns.items():
            if name not in _LIMITS:
                made[name] = objects(values)
                continue
            if name in _OPTIONAL:
                values = [_OPTIONAL[name] if value is None else value for value in values]
            made[name] = np.array(values, dtype=np.int64 if _LIMITS[name][0] is int else np.float64)
        return cls(**made, source=source)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """The records of several runs that have no input in common, put in order."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES
        }
        return cls(**columns).take(np.argsort(columns["index"], kind="stable"))

    def __len__(self) -> int:
        return len(self.index)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Records: ...
    def __getitem__(self, place: int | slice) -> Record | Records:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        tallies = (self._tally(kept[place], place) for kept in (self.selection, self.estimation))
        record = self._row(place, *tallies)
        try:
            check_votes(record)
        except ValueError as error:
            raise self._damaged(place, error) from None
        return record

    def __iter__(self) -> Iterator[Record]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records | Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def take(self, places: Ints | Bools | range) -> Records:
        """The records at these places, or where a mask is set."""
        at = np.asarray(places)
        return Records(**{name: getattr(self, name)[at] for name in _NAMES}, source=self.source)

    @cached_property
    def abstained(self) -> Bools:
        """Where nothing was certified."""
        return np.asarray(self.predicted == ABSTAIN)

    @cached_property
    def correct(self) -> Bools:
        """Where the certified class is the label; an abstention is not."""
        return np.asarray((self.predicted == self.label) & ~self.abstained)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything but the time: equal digests mean equal results to the last bit.

        Votes aren't decoded where their text is what would be written.
        """
        digest = hashlib.sha256()
        for place in range(len(self)):
            selection, estimation = _tally_text(self.selection[place]), _tally_text(self.estimation[place])
            if selection is not None and estimation is not None:
                record = self._row(place)
            else:
                record = self[place]
                tallies = record.selection, record.estimation
                selection, estimation = (json.dumps(tally and tally.as_json()) for tally in tallies)
            digest.update(_digested(record, selection, estimation))
        return digest.hexdigest()

    @cached_property
    def votes(self) -> VoteColumns:
        """Figures of the estimation votes."""
        return VoteColumns.of(self)

    def _row(self, place: int, selection: Tally | None = None, estimation: Tally | None = None) -> Record:
        index, label, predicted = (int(c[place]) for c in (self.index, self.label, self.predicted))
        radius, sigma, seconds = (float(c[place]) for c in (self.radius, self.sigma, self.seconds))
        base, volume = int(self.base[place]), float(self.volume_radius[place])
        optional = None if base == UNKNOWN else base, None if math.isnan(volume) else volume
        own = index, label, predicted, radius, sigma, seconds
        return Record(*own, selection, estimation, *optional, self.stopped[place])

    def has_votes(self) -> bool:
        """Whether every record keeps its estimation votes."""
        return all(kept is not None for kept in self.estimation)

    def _tally(self, kept: Tally | str | None, place: int) -> Tally | None:
        if not isinstance(kept, str):
            return kept
        try:
            return Tally.from_json(json.loads(kept))
        except UNREADABLE as error:
            raise self._damaged(place, error) from None

    def _damaged(self, place: int, error: Exception) -> RunError:
        where = "" if self.source is None else f"{self.source}: "
        return RunError(f"{where}the record of input {self.index[place]} is damaged ({error}); restore it")


Rows = Records | Sequence[Record]
"""Records in either form; :meth:`Records.of` makes columns of both."""


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """A column of any values, sequences among them."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


@dataclass(frozen=True, eq=False)
class VoteColumns:
    """Of each input: votes for its classes ahead, for the chosen one, and for the strongest wrong one.

    Soft votes count as the sum of probabilities. Inputs without a tally have NaN and :data:`UNKNOWN`.
    """

    total: Floats
    chosen: Ints
    chosen_votes: Floats
    rival: Ints
    rival_votes: Floats
    leaders: Ints
    leader_votes: Floats

    @classmethod
    def of(cls, records: Records) -> VoteColumns:
        """The columns of a run's estimation votes."""
        count = len(records)
        unknown, nothing = np.full(count, UNKNOWN), np.full(count, np.nan)
        ahead = np.full((count, SHOWN_CLASSES), UNKNOWN), np.zeros((count, SHOWN_CLASSES))
        votes = cls(nothing, unknown, nothing.copy(), unknown.copy(), nothing.copy(), *ahead)
        scores: dict[int, Sequence[float]] = {}
        by_width: dict[int, list[int]] = {}
        for place, kept in enumerate(records.estimation):
            if kept is not None:
                n, scores[place] = _scores(records, place)
                votes.total[place] = n or np.nan
                by_width.setdefault(len(scores[place]), []).append(place)
        for places in by_width.values():
            table = np.array([scores[place] for place in places], dtype=np.float64)
            votes._fill(records, np.array(places), table)
        return votes

    def _fill(self, records: Records, places: Ints, table: Floats) -> None:
        rows, width = np.arange(len(places)), table.shape[1]
        label = records.label[places]
        chosen = records.predicted[places].copy()
        for row in np.flatnonzero(records.abstained[places]):
            selection = records[int(places[row])].selection
            chosen[row] = UNKNOWN if selection is None else selection.top()
        # Where voting ended before it began, there is a class and no share of votes.
        known = (chosen >= 0) & (chosen < width) & ~np.isnan(self.total[places])
        self.chosen[places] = np.where(known, chosen, UNKNOWN)
        self.chosen_votes[places] = np.where(known, table[rows, np.where(known, chosen, 0)], np.nan)
        order = np.argsort(-table, axis=1, kind="stable")[:, :SHOWN_CLASSES]
        self.leaders[places, : order.shape[1]] = order
        self.leader_votes[places, : order.shape[1]] = np.take_along_axis(table, order, axis=1)
        labelled = label < width
        table[rows[labelled], label[labelled]] = -1.0
        rival = table.argmax(axis=1)
        voted = table[rows, rival] > 0
        self.rival[places] = np.where(voted, rival, UNKNOWN)
        self.rival_votes[places] = np.where(voted, table[rows, rival], 0.0)


def _scores(records: Records, place: int) -> tuple[int, Sequence[float]]:
    kept = records.estimation[place]
    counts: Sequence[int]
    sums: Sequence[int] | None
    if isinstance(kept, str) and (plain := _PLAIN_TALLY.fullmatch(kept)) is not None:
        counts = list(map(int, plain[1].split(", ")))
        sums = None if plain[2] is None else list(map(int, plain[2].split(", ")))
    else:
        tally = records[place].estimation
        assert tally is not None
        counts, sums = tally.counts, tally.sums
    return sum(counts), counts if sums is None else [total / SOFT_UNIT for total in sums]


def certified_accuracy(records: Rows, radii: Sequence[float]) -> NDArray[np.float64]:
    """For each r of ``radii`` the fraction of all inputs that are correct, not abstained and have radius ≥ r."""
    check_some(records)
    certified = correct_radii(records)
    below = np.searchsorted(certified, np.asarray(radii, dtype=np.float64), side="left")
    return np.asarray((certified.size - below) / len(records), dtype=np.float64)


def average_certified_radius(records: Rows) -> float:
    """ACR: the mean over all inputs of the radius, counted as 0 where the answer is wrong or missing."""
    check_some(records)
    return math.fsum(correct_radii(records)) / len(records)


def correct_radii(records: Rows) -> NDArray[np.float64]:
    """The radii of the correct answers, in ascending order."""
    columns = Records.of(records)
    return np.sort(columns.radius[columns.correct])


def step_counts(
    sizes: NDArray[np.float64], start: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """From ``start`` on, where the number of ``sizes`` (ascending) that are reached drops, and that number beyond."""
    jumps = np.unique(sizes)
    left = sizes.size - np.searchsorted(sizes, jumps, side="right")
    return np.concatenate([[start], jumps]), np.concatenate([[sizes.size], left]).astype(np.int64)


def check_some(records: Rows) -> None:
    """Refuse to average nothing."""
    if not records:
        raise RunError("no input has been certified yet, so there is nothing to average")
