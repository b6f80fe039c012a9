"""What a certification costs: rows that the model computes, and their time. Arithmetic alone: nothing is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smoothcert.sampling.numerics import Layout

BYTES_OF_A_RUN = 1 << 14
"""Statement, lock and the empty tables of a journal, about."""
BYTES_OF_A_RECORD = 320
"""Of a record with two tallies of a few classes, about: numbers, checksum, and what SQLite adds."""
BYTES_OF_A_CLASS = 4
"""For each class beyond a few, in both tallies together, about: most counts are a zero and its comma."""
_CLASSES_INCLUDED = 10


@dataclass(frozen=True)
class Work:
    """What the inputs ask of the model."""

    inputs: int
    votes: float
    """Of all inputs, those that choose a class included."""
    rows: float
    """That the model computes: votes, padding, and a pass of each input without noise."""
    passes: float

    @classmethod
    def of(cls, layout: Layout, inputs: int, draws: Iterable[tuple[float, int]]) -> Work:
        """``inputs`` inputs, of which each draws so many votes, so often on average: (times, votes)."""
        drawn = [(times, votes, padded(layout, votes)) for times, votes in draws]
        rows = inputs * (sum(times * full for times, _, full in drawn) + layout.chunk)
        return cls(
            inputs, inputs * sum(times * votes for times, votes, _ in drawn), rows, rows / layout.chunk
        )


def padded(layout: Layout, votes: int) -> int:
    """Rows that a draw takes: whole passes; whole blocks where a pass has room for those of several inputs."""
    step = min(layout.chunk, layout.block)
    return -(-votes // step) * step


@dataclass(frozen=True)
class Pace:
    """How fast the work goes."""

    rows_per_second: float
    """Of all workers together."""
    start_seconds: float = 0.0
    """Until the first vote."""
    record_seconds: float = 0.0
    """That the process which owns the run needs for a record; it writes while others vote."""

    def seconds(self, work: Work) -> float:
        """The time that the work takes: votes, or records where these are slower."""
        return self.start_seconds + max(work.rows / self.rows_per_second, work.inputs * self.record_seconds)

    def bottleneck(self, work: Work) -> str:
        """Which of the two decides."""
        voting = work.rows / self.rows_per_second
        return "votes" if voting >= work.inputs * self.record_seconds else "records"


def bytes_on_disk(inputs: int, classes: int) -> int:
    """The size of the run, about; without Parquet, logs and pictures made of it later."""
    beyond = max(0, classes - _CLASSES_INCLUDED)
    return BYTES_OF_A_RUN + inputs * (BYTES_OF_A_RECORD + beyond * BYTES_OF_A_CLASS)
