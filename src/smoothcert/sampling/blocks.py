"""Blocks of certifying votes: what an input under way has asked for, cut into parts with random states of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.sampling.lanes import Lanes
from smoothcert.sampling.procedures import Job
from smoothcert.sampling.streams import BlockBits, NoisyCopies
from smoothcert.tally import Phase, Stream, Tally


@dataclass
class ActiveInput:
    """An input under way: where its streams stand and what the present draw has gathered."""

    job: Job[Any]
    copies: NoisyCopies
    drawn: dict[Phase, int] = field(default_factory=dict)
    stream: Stream = field(init=False)
    start: int = 0
    missing: int = 0
    sums: NDArray[np.int64] = field(init=False)
    seconds: float = 0.0

    def tally(self) -> Tally:
        """The present draw, once nothing is missing."""
        rows = [tuple(int(v) for v in row) for row in self.sums]
        return Tally(self.stream, self.start, self.start + sum(rows[0]), rows[0], *rows[1:])


@dataclass(frozen=True)
class Block:
    """Votes ``first`` to ``last`` of block ``number`` of a stream."""

    of: ActiveInput
    stream: Stream
    number: int
    first: int
    last: int

    @property
    def index(self) -> int:
        """The input's."""
        return self.of.job.index

    def __len__(self) -> int:
        return self.last - self.first

    def fill(self, out: torch.Tensor, bits: BlockBits, /) -> None:
        """The block's noisy copies from its first on."""
        self.of.copies.draw(out, bits.seek(self.stream, self.number))


def queue_blocks(lanes: Lanes[Block], slots: int, size: int, of: ActiveInput, stop: int) -> None:
    """Queue votes ``of.start`` to ``stop`` in blocks of ``size``: block b of input i goes to slot (i + b) mod slots."""
    stream, start = of.stream, of.start

    def blocks(numbers: range) -> Iterator[Block]:
        for number in numbers:
            origin = number * size
            yield Block(of, stream, number, max(start - origin, 0), min(stop - origin, size))

    numbers = range(start // size, -(-stop // size))
    for offset in range(min(slots, len(numbers))):
        own = numbers[offset::slots]
        lanes.add((of.job.index + own[0]) % slots, blocks(own), len(own))
