"""Records as columns: what figures are computed from, with a row view for a look at single inputs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RunError
from smoothcert.runs.records import UNREADABLE, Record, check_votes, digested, tally_json
from smoothcert.runs.tally_text import is_plain
from smoothcert.runs.vote_columns import VoteColumns
from smoothcert.tally import ABSTAIN, Tally

UNKNOWN = -2
"""In place of a base class that a record doesn't state."""

_NAMES = [each.name for each in fields(Record)]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
    def from_rows(cls, rows: Sequence[Sequence[Any]], names: Sequence[str], source: Path) -> Records:
        """From rows that are in order, with ``names`` in them; tallies are JSON."""
        columns = dict(zip(names, zip(*rows))) if rows else {}
        return cls._made({name: columns.get(name, ()) for name in _NAMES}, source)

    @classmethod
    def _made(cls, columns: dict[str, Sequence[Any]], source: Path | None = None) -> Records:
        for name, unknown in (("base", UNKNOWN), ("volume_radius", np.nan)):
            columns[name] = [unknown if one is None else one for one in columns[name]]
        return cls(**{name: _column(name, values) for name, values in columns.items()}, source=source)

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
        selection, estimation = (self._tally(one[place], place) for one in (self.selection, self.estimation))
        record = self._row(place, selection, estimation)
        try:
            check_votes(record)
        except ValueError as error:
            raise self._damaged(place, error) from None
        return record

    def __iter__(self) -> Iterator[Record]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether the rows are the same, as a tuple or list of records may be."""
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
        """:func:`~smoothcert.runs.records.results_digest`, without decoding what comes back as it is."""
        digest = hashlib.sha256()
        for place in range(len(self)):
            tallies = self.selection[place], self.estimation[place]
            if all(one is None or (isinstance(one, str) and is_plain(one)) for one in tallies):
                record, texts = self._row(place), ["null" if one is None else one for one in tallies]
            else:
                record = self[place]
                texts = [tally_json(record.selection), tally_json(record.estimation)]
            digest.update(digested(record, *texts))
        return digest.hexdigest()

    @cached_property
    def votes(self) -> VoteColumns:
        """Figures of the estimation votes."""
        return VoteColumns.of(self)

    def _row(self, place: int, selection: Tally | None = None, estimation: Tally | None = None) -> Record:
        volume = float(self.volume_radius[place])
        return Record(
            int(self.index[place]),
            int(self.label[place]),
            int(self.predicted[place]),
            float(self.radius[place]),
            float(self.sigma[place]),
            float(self.seconds[place]),
            selection,
            estimation,
            None if self.base[place] == UNKNOWN else int(self.base[place]),
            None if math.isnan(volume) else volume,
            self.stopped[place],
        )

    def has_votes(self) -> bool:
        """Whether every record keeps its estimation votes."""
        return all(one is not None for one in self.estimation)

    def _tally(self, kept: Tally | str | None, place: int) -> Tally | None:
        if not isinstance(kept, str):
            return kept
        try:
            return Tally.from_json(json.loads(kept))
        except UNREADABLE as error:
            raise self._damaged(place, error) from None

    def _damaged(self, place: int, error: Exception) -> RunError:
        where = "" if self.source is None else f"{self.source}: "
        return RunError(
            f"{where}the record of input {self.index[place]} is damaged ({error}); restore the file"
        )


Rows = Records | Sequence[Record]
"""Records in either form; :meth:`Records.of` makes columns of both."""


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """A column of any values, sequences among them."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _column(name: str, values: Sequence[Any]) -> NDArray[Any]:
    if name in ("selection", "estimation", "stopped"):
        return objects(values)
    whole = name in ("index", "label", "predicted", "base")
    return np.array(values, dtype=np.int64 if whole else np.float64)
