"""Tally: exact integer sums of votes, and the random stream they were drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from smoothcert.errors import InvalidValueError

SOFT_UNIT = 2**32
"""Soft votes are summed in whole multiples of 2⁻³², so that sums are exact in any order."""

_MOST = 2**63 - 1  # votes, or units of soft ones
_INTEGERS = {int}

ABSTAIN = -1
"""The class reported when the votes don't decide."""

STREAM_VERSION = 2
"""Which numbers a stream is made of. 1: noise drawn and added in floating point; 2: whole steps of a grid.

Stored votes depend on what follows: a change needs another version.
"""

NUMBERS_TOGETHER = 1 << 18
"""Of noise that a long block draws at once, about."""
STEPS_TOGETHER = 1 << 15
"""Numbers that a sampler draws from neighbouring bits: few enough for the cache."""


class Phase(IntEnum):
    """What a stream's votes are for; streams of different phases are independent."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    SEARCH = 3
    PILOT = 4
    CHECK = 5


@dataclass(frozen=True)
class Stream:
    """Names a sequence of independent votes: the v-th vote of a stream is always the same draw."""

    seed: int
    index: int
    phase: Phase


@dataclass(frozen=True)
class Tally:
    """Votes ``start`` to ``stop`` of one stream.

    ``counts[c]`` votes had c as their top class. For soft votes ``sums[c]`` is the sum of the class's
    probability and ``squares[c]`` of its square, in units of 2⁻³², rounded so that a mean is never
    overstated and a variance never understated.
    """

    stream: Stream
    start: int
    stop: int
    counts: tuple[int, ...]
    sums: tuple[int, ...] | None = None
    squares: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if any(type(count) is not int for count in self.counts):  # small types of NumPy's overflow in bounds
            object.__setattr__(self, "counts", tuple(map(int, self.counts)))
        if self.start < 0 or sum(self.counts) != self.stop - self.start:
            raise InvalidValueError(
                f"a tally of votes {self.start} to {self.stop} must count {self.stop - self.start}, "
                f"got {sum(self.counts)}"
            )

    @property
    def n(self) -> int:
        """Number of votes."""
        return self.stop - self.start

    def __add__(self, later: Tally) -> Tally:
        """Join with the votes that follow in the same stream; anything else would count a draw twice."""
        if later.stream != self.stream:
            raise InvalidValueError(f"tallies of other streams don't add: {self.stream} and {later.stream}")
        if later.start != self.stop:
            raise InvalidValueError(
                f"votes {later.start}..{later.stop} don't follow {self.start}..{self.stop}"
            )
        return Tally(
            self.stream,
            self.start,
            later.stop,
            _added(self.counts, later.counts),
            _added_if_both(self.sums, later.sums),
            _added_if_both(self.squares, later.squares),
        )

    def top(self) -> int:
        """The class ahead: by mean probability for soft votes, by count for hard ones; ties to the lowest."""
        score = self.sums if self.sums is not None else self.counts
        return max(range(len(score)), key=score.__getitem__)

    def as_json(self) -> dict[str, Any]:
        """The whole tally in plain values."""
        fields: dict[str, Any] = {
            "seed": self.stream.seed,
            "index": self.stream.index,
            "phase": self.stream.phase.name.lower(),
            "start": self.start,
            "counts": list(self.counts),
        }
        if self.sums is not None and self.squares is not None:
            fields |= {"sums": list(self.sums), "squares": list(self.squares)}
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Tally:
        """The inverse of :meth:`as_json`; ValueError, KeyError or TypeError for what isn't."""
        counts = _whole(fields["counts"], "counts")
        seed, index, start = fields["seed"], fields["index"], fields["start"]
        if not (type(seed) is type(index) is type(start) is int) or seed < 0 or index < 0 or start < 0:
            raise ValueError("a tally needs whole numbers for its seed, index and start")
        sums = _whole(fields["sums"], "sums") if "sums" in fields else None
        squares = _whole(fields["squares"], "squares") if "squares" in fields else None
        if any(one is not None and len(one) != len(counts) for one in (sums, squares)):
            raise ValueError("a tally needs sums and squares for each class it counts")
        stream = Stream(seed, index, Phase[fields["phase"].upper()])
        return cls(stream, start, start + sum(counts), counts, sums, squares)


def _whole(values: Any, name: str) -> tuple[int, ...]:
    """A whole number for each class, none of them negative; ValueError for anything else."""
    found = tuple(values)
    if set(map(type, found)) != _INTEGERS or min(found) < 0 or sum(found) > _MOST:
        raise ValueError(f"{name} must be a whole number of votes for each class")
    return found


def _added(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    if len(first) != len(second):
        raise InvalidValueError(f"tallies over {len(first)} and {len(second)} classes don't add")
    return tuple(a + b for a, b in zip(first, second))


def _added_if_both(first: tuple[int, ...] | None, second: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if (first is None) != (second is None):
        raise InvalidValueError("hard and soft tallies don't add")
    return None if first is None or second is None else _added(first, second)
