"""Record: what a run keeps of one input."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from smoothcert.tally import ABSTAIN, Tally

MOST_INPUTS = 2**53
MOST_CLASSES = 100_000
FARTHEST = 1e50
"""What an input's number, a class, and a radius or σ can be at most: beyond, a record is damaged or hostile."""


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
"""What values of another kind than they should be may raise where they are read."""


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


def check_record(record: Record) -> None:
    """ValueError for a record read from a file whose values can't be a record's: figures are computed from them."""
    classes = [(record.label, 0), (record.predicted, ABSTAIN)] + (
        [] if record.base is None else [(record.base, 0)]
    )
    sizes = [record.radius, record.sigma] + ([] if record.volume_radius is None else [record.volume_radius])
    if type(record.index) is not int or not 0 <= record.index <= MOST_INPUTS:
        raise ValueError(f"no input has the number {record.index!r}")
    if not all(type(number) is int and least <= number <= MOST_CLASSES for number, least in classes):
        raise ValueError(f"input {record.index} has a label, answer or base class that is no class")
    if not all(type(size) is float and 0 <= size <= FARTHEST for size in sizes):
        raise ValueError(f"input {record.index} has a radius or σ that is no size")
    if type(record.seconds) is not float or not (math.isfinite(record.seconds) and record.seconds >= 0):
        raise ValueError(f"input {record.index} took {record.seconds!r} seconds")
    if record.stopped is not None and type(record.stopped) is not str:
        raise ValueError(f"input {record.index} ended by {record.stopped!r}")
    check_votes(record)


def check_votes(record: Record) -> None:
    """ValueError for an answer or votes that are of other classes than the votes they rest on."""
    first, second = record.selection, record.estimation
    if first is None and second is None:
        return
    widths = [len(tally.counts) for tally in (first, second) if tally is not None]
    if widths[0] != widths[-1] or record.predicted >= widths[0]:
        raise ValueError(
            f"input {record.index} is answered, or voted on, with classes that the votes don't have"
        )


def results_digest(records: Iterable[Record]) -> str:
    """SHA-256 over everything but the time: equal digests mean equal results to the last bit."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda r: r.index):
        digest.update(digested(record, *map(tally_json, (record.selection, record.estimation))))
    return digest.hexdigest()


def tally_json(tally: Tally | None) -> str:
    """A tally as a journal and a digest have it."""
    return "null" if tally is None else json.dumps(tally.as_json())


def digested(record: Record, selection: str, estimation: str) -> bytes:
    """What a digest takes of a record, whose tallies are given as JSON: a list of its fields."""
    fields = [record.index, record.label, record.predicted, record.radius.hex(), record.sigma.hex()]
    after: list[object] = [record.base]
    # Only where they are stated: digests of plain runs stay what they were.
    if record.volume_radius is not None or record.stopped is not None:
        after += [record.volume_radius and record.volume_radius.hex(), record.stopped]
    return f"{json.dumps(fields)[:-1]}, {selection}, {estimation}, {json.dumps(after)[1:]}".encode()
