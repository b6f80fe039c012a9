"""What a run states of each input, as it stands in its files: votes, records, and the lines of its side files.

Nothing is trusted, and no default hides what is missing: UnreadableError says what can't be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from smoothcert_verify.reading import UnreadableError, integer, number, read_objects

T = TypeVar("T")

SOFT_UNIT = 2**32
"""Soft votes are stated in multiples of 2⁻³²."""
LEVELS = "levels.jsonl"
WHOLE = ("index", "label", "predicted", "abstained")
"""A record's whole numbers, as its checksum takes them in."""


@dataclass(frozen=True)
class Votes:
    """Counts of one stream's votes from ``start`` on; for soft votes also sums of probabilities and their squares."""

    seed: int
    index: int
    phase: str
    start: int
    counts: tuple[int, ...]
    sums: tuple[int, ...] | None = None
    squares: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, value: object) -> Votes:
        """From a tally's JSON, as text or parsed."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"votes that are no JSON ({error})") from None
        if not isinstance(value, dict):
            raise UnreadableError("votes that are no JSON object")
        phase = value.get("phase")
        if not isinstance(phase, str):
            raise UnreadableError(f"votes of the phase {phase!r}")
        sums, squares = (_integers(value, name) if name in value else None for name in ("sums", "squares"))
        counts = _integers(value, "counts")
        lengths = {None if numbers is None else len(numbers) for numbers in (sums, squares)}
        if lengths not in ({None}, {len(counts)}):
            raise UnreadableError("votes whose counts, sums and squares aren't of the same classes")
        seed, index, start = (integer(value, name) for name in ("seed", "index", "start"))
        return cls(seed, index, phase, start, counts, sums, squares)

    @property
    def n(self) -> int:
        """Number of votes."""
        return sum(self.counts)

    @property
    def top(self) -> int:
        """The class ahead, ties to the lowest: by probability for soft votes, else by count."""
        score = self.counts if self.sums is None else self.sums
        return score.index(max(score))

    def stated(self) -> dict[str, Any]:
        """As a journal writes it."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def impossible(self) -> Iterator[str]:
        """Sums that no votes can have."""
        if min(self.counts) < 0:
            yield f"a count of {min(self.counts)} {self.phase} votes"
        if self.sums is None or self.squares is None:
            return
        if min(self.sums) < 0 or min(self.squares) < 0 or sum(self.sums) > self.n * SOFT_UNIT:
            yield f"probabilities of {self.phase} votes that add up to more than their number"
        # Sums were rounded down and squares up, vote by vote; s² ≤ s, and the mean square is at least the mean squared.
        for c, (total, square) in enumerate(zip(self.sums, self.squares)):
            if square > total + self.n or self.n * square * SOFT_UNIT < total * total:
                yield f"squares of class {c}'s {self.phase} votes that don't fit its sum"


@dataclass(frozen=True)
class StatedRecord:
    """One input's result as the journal has it."""

    index: int
    label: int
    predicted: int
    abstained: int
    radius: float
    sigma: float
    selection: Votes | None
    estimation: Votes | None
    base: int | None
    volume_radius: float | None
    stopped: str | None

    @classmethod
    def parse(cls, row: dict[str, Any]) -> StatedRecord:
        """From a row of the journal; columns of later versions may be missing."""
        stopped = row.get("stopped")
        if stopped is not None and not isinstance(stopped, str):
            raise UnreadableError(f"stopped = {stopped!r}, which is not text")
        index, label, predicted, abstained = (integer(row, name) for name in WHOLE)
        radius, sigma = number(row, "radius"), number(row, "sigma")
        votes = _votes_or_none(row, "selection"), _votes_or_none(row, "estimation")
        base = None if row.get("base") is None else integer(row, "base")
        volume = None if row.get("volume_radius") is None else number(row, "volume_radius")
        return cls(index, label, predicted, abstained, radius, sigma, *votes, base, volume, stopped)

    @property
    def votes(self) -> int:
        """How many it keeps."""
        return sum(votes.n for votes in (self.selection, self.estimation) if votes is not None)

    def digested(self) -> bytes:
        """What the digest of a run's results takes in."""
        votes = [votes and votes.stated() for votes in (self.selection, self.estimation)]
        fields: list[Any] = [self.index, self.label, self.predicted, self.radius.hex(), self.sigma.hex()]
        fields += [*votes, self.base]
        if self.volume_radius is not None or self.stopped is not None:
            fields += [self.volume_radius and self.volume_radius.hex(), self.stopped]
        return json.dumps(fields).encode()


@dataclass(frozen=True)
class StatedSearch:
    """What a search's line says of one input: its σ, and the hash of its scales where it has one for each number."""

    sigma: float
    noise: str | None
    sigmas_sha256: str | None


@dataclass(frozen=True)
class LevelVotes:
    """The votes at one level."""

    level: int
    selection: Votes
    estimation: Votes
    stopped: str | None

    @classmethod
    def parse(cls, part: dict[str, Any]) -> LevelVotes:
        """From a part of a line."""
        votes = Votes.parse(part.get("selection")), Votes.parse(part.get("estimation"))
        return cls(integer(part, "level"), *votes, part.get("stopped"))


@dataclass(frozen=True)
class LevelLine:
    """What stands in ``levels.jsonl`` of one input: the home level's votes are the first of ``votes``."""

    home: int
    chosen: Votes | None
    chooser: Votes | None
    votes: tuple[LevelVotes, ...]


def read_found(directory: Path) -> dict[int, StatedSearch]:
    """The lines of ``sigma_search.jsonl`` by index, the last of each."""
    return _by_index(
        directory / "sigma_search.jsonl",
        lambda line: StatedSearch(number(line, "sigma"), line.get("noise"), line.get("sigmas_sha256")),
    )


def read_pilots(directory: Path) -> dict[int, tuple[Votes, Votes | None]]:
    """Selection and pilot votes by index, where a total was spread."""
    return _by_index(
        directory / "pilots.jsonl",
        lambda line: (Votes.parse(line.get("selection")), _votes_or_none(line, "pilot")),
    )


def read_levels(directory: Path) -> dict[int, LevelLine]:
    """The lines of ``levels.jsonl`` by index, the last of each."""
    return _by_index(directory / LEVELS, _level_line)


def _level_line(line: dict[str, Any]) -> LevelLine:
    votes = line.get("votes")
    if not isinstance(votes, list) or not votes or not all(isinstance(part, dict) for part in votes):
        raise UnreadableError("no votes at any level")
    chosen, chooser = (_votes_or_none(line, name) for name in ("chosen", "chooser"))
    return LevelLine(integer(line, "home"), chosen, chooser, tuple(map(LevelVotes.parse, votes)))


def _by_index(path: Path, parse: Callable[[dict[str, Any]], T]) -> dict[int, T]:
    """What the lines of a file say by index, the last of each."""
    found = {}
    for line in read_objects(path):
        try:
            found[integer(line, "index")] = parse(line)
        except UnreadableError:
            continue  # cut off by a kill: the input was asked again
    return found


def _votes_or_none(fields: dict[str, Any], name: str) -> Votes | None:
    value = fields.get(name)
    return None if value is None else Votes.parse(value)


def _integers(fields: dict[str, Any], name: str) -> tuple[int, ...]:
    values = fields.get(name)
    if not isinstance(values, list) or not values or any(type(v) is not int for v in values):
        raise UnreadableError(f"{name} that aren't a list of whole numbers")
    return tuple(values)
