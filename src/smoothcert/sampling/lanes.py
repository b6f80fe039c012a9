"""Lanes: the blocks of votes that wait for the model, each in its fixed place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.noise.sampler import CellSampler
from smoothcert.sampling.numerics import Layout
from smoothcert.sampling.procedures import Job
from smoothcert.tally import Phase, Stream, Tally


@dataclass
class Place:
    """An input under way: where its streams stand and what the draw in hand has gathered.

    Its noisy copies are (``steps`` + whole numbers of steps drawn by ``sampler``) / ``divisor``.
    """

    job: Job[Any]
    steps: torch.Tensor
    divisor: torch.Tensor
    sampler: CellSampler
    drawn: dict[Phase, int] = field(default_factory=dict)
    stream: Stream = field(init=False)
    start: int = 0
    missing: int = 0
    sums: NDArray[np.int64] = field(init=False)
    seconds: float = 0.0

    def tally(self) -> Tally:
        """The draw in hand, once nothing is missing."""
        rows = [tuple(int(v) for v in row) for row in self.sums]
        return Tally(self.stream, self.start, self.start + sum(rows[0]), rows[0], *rows[1:])


@dataclass(frozen=True)
class Block:
    """Votes ``first`` to ``last`` of block ``number`` of the stream of a place's draw."""

    place: Place
    stream: Stream
    number: int
    first: int
    last: int


Round = list[Block | None]


class Lanes:
    """Blocks waiting for a round, one lane for each slot of it.

    Block b of input i waits in lane (i + b) mod slots, so that it sits in the same rows of a round whoever its
    neighbours are. Lanes hold iterators: a draw of any size takes no more memory than one of a few votes.
    """

    def __init__(self, layout: Layout) -> None:
        self._lanes: list[deque[Iterator[Block]]] = [deque() for _ in range(layout.slots)]
        self._block = layout.block
        self.waiting = 0

    def add(self, place: Place, start: int, stop: int) -> None:
        """Queue votes ``start`` to ``stop`` of the place's stream."""
        numbers = range(start // self._block, -(-stop // self._block))
        slots = len(self._lanes)
        for offset in range(min(slots, len(numbers))):
            mine = numbers[offset::slots]
            lane = self._lanes[(place.job.index + mine[0]) % slots]
            lane.append(self._blocks(place, place.stream, mine, start, stop))
        self.waiting += len(numbers)

    def _blocks(self, place: Place, stream: Stream, numbers: range, start: int, stop: int) -> Iterator[Block]:
        for number in numbers:
            origin = number * self._block
            yield Block(place, stream, number, max(start - origin, 0), min(stop - origin, self._block))

    def next_round(self) -> Round:
        """One block from every lane that has any."""
        return [self._take(lane) for lane in self._lanes]

    def _take(self, lane: deque[Iterator[Block]]) -> Block | None:
        while lane:
            block = next(lane[0], None)
            if block is not None:
                self.waiting -= 1
                return block
            lane.popleft()
        return None
