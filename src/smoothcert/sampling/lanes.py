"""Lanes: what waits for a pass, in a slot that doesn't depend on its neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.sampling.numerics import Layout
from smoothcert.sampling.procedures import Job
from smoothcert.sampling.streams import BlockBits, NoisyCopies
from smoothcert.tally import Phase, Stream, Tally

T = TypeVar("T")


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
    """Votes ``first`` to ``last`` of block ``number`` of the stream of an input's draw."""

    copies: NoisyCopies
    stream: Stream
    number: int
    first: int
    last: int

    @property
    def index(self) -> int:
        """The input's."""
        return self.stream.index

    @property
    def wanted(self) -> slice:
        """The votes asked for."""
        return slice(self.first, self.last)

    @property
    def votes(self) -> int:
        """How many they are."""
        return self.last - self.first

    def fill(self, out: torch.Tensor, bits: BlockBits, /) -> None:
        """The block's noisy copies from its first on."""
        self.copies.draw(out, bits.seek(self.stream, self.number))


@dataclass(frozen=True)
class OwnBlock(Block):
    """A block that knows the input under way that waits for it; sent to another process, it is a plain one."""

    of: ActiveInput

    def __reduce__(self) -> Any:
        return Block, (self.copies, self.stream, self.number, self.first, self.last)


Round = Sequence[Block | None]
Task = Sequence[Round]


B = TypeVar("B", bound=Block)


def timed(
    blocks: Sequence[Block], sums: Iterable[NDArray[np.int64]], seconds: float
) -> list[tuple[NDArray[np.int64], float]]:
    """The sums of each block with its share of the seconds that all of them took."""
    share = seconds / sum(block.votes for block in blocks)
    return [(counted, share * block.votes) for counted, block in zip(sums, blocks)]


def blocks_of(task: Sequence[Sequence[B | None]]) -> list[B]:
    """A task's blocks, in the order of their results."""
    return [block for one in task for block in one if block is not None]


class Lanes:
    """Blocks waiting for a round, one lane for each slot of it.

    Block b of input i waits in lane (i + b) mod slots. Lanes hold iterators: a draw of any size takes no more memory
    than one of a few votes.
    """

    def __init__(self, layout: Layout) -> None:
        self._lanes: list[deque[Iterator[OwnBlock]]] = [deque() for _ in range(layout.slots)]
        self._block = layout.block
        self.waiting = 0

    def add(self, of: ActiveInput, start: int, stop: int) -> None:
        """Queue votes ``start`` to ``stop`` of the input's stream."""
        numbers = range(start // self._block, -(-stop // self._block))
        slots = len(self._lanes)
        for offset in range(min(slots, len(numbers))):
            own = numbers[offset::slots]
            lane = self._lanes[(of.job.index + own[0]) % slots]
            lane.append(self._blocks(of, of.stream, own, start, stop))
        self.waiting += len(numbers)

    def _blocks(
        self, of: ActiveInput, stream: Stream, numbers: range, start: int, stop: int
    ) -> Iterator[OwnBlock]:
        for number in numbers:
            origin = number * self._block
            first, last = max(start - origin, 0), min(stop - origin, self._block)
            yield OwnBlock(of.copies, stream, number, first, last, of)

    def next_round(self) -> list[OwnBlock | None]:
        """One block from every lane that has any."""
        return [self._take(lane) for lane in self._lanes]

    def _take(self, lane: deque[Iterator[OwnBlock]]) -> OwnBlock | None:
        while lane:
            block = next(lane[0], None)
            if block is not None:
                self.waiting -= 1
                return block
            lane.popleft()
        return None


def rounds(slots: int, items: Iterable[tuple[int, T]]) -> list[list[T | None]]:
    """Items, each with its slot, in as many rounds as the fullest slot needs; None where a slot stays empty."""
    lanes: list[list[T]] = [[] for _ in range(slots)]
    for slot, item in items:
        lanes[slot].append(item)
    return [list(one) for one in zip_longest(*lanes)]


def slot_of(index: int, slots: int) -> int:
    """An input's slot, from its index alone; Fibonacci hashing spreads evenly spaced indices evenly."""
    return ((index * 0x9E3779B97F4A7C15 & (1 << 64) - 1) * slots) >> 64
