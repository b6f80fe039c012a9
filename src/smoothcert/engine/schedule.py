"""The schedule: procedures that ask for votes, the blocks that these are cut into, and their random streams.

A procedure decides about one input, as a generator that asks for votes. Every block of votes has fair bits of its own,
and waits for a pass in a slot that doesn't depend on its neighbours.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import check_count
from smoothcert.models.numerics import Layout
from smoothcert.perturb.base import Copies
from smoothcert.tally import STREAM_VERSION, Phase, Stream, Tally

if TYPE_CHECKING:
    import torch

    from smoothcert.engine.passes import Voter

_WORDS = 3  # of SFC64's state; its fourth is a counter that begins at 1


class BlockBits:
    """A bit generator that can be put at the start of any block of any stream.

    SFC64's 192 bits of state are SHAKE-128 of (seed, input, phase, block), so that no two blocks share a sequence: two
    of a million million of them meet with a probability below 2⁻¹⁰⁰.
    """

    def __init__(self) -> None:
        self._bits = np.random.SFC64(0)
        self._state = self._bits.state
        self._words: NDArray[np.uint64] = self._state["state"]["state"]
        self._words[_WORDS] = 1  # a counter

    def seek(self, stream: Stream, block: int) -> np.random.SFC64:
        """The generator, at the first bit of ``block``."""
        self._words[:_WORDS] = stream_words(stream, block)
        self._bits.state = self._state
        return self._bits


def stream_words(stream: Stream, block: int) -> NDArray[np.uint64]:
    """The words of generator state that belong to one block."""
    key = f"smoothcert stream {STREAM_VERSION}|{stream.seed}/{stream.index}/{int(stream.phase)}/{block}"
    return np.frombuffer(hashlib.shake_128(key.encode()).digest(8 * _WORDS), dtype="<u8")


R = TypeVar("R")


@dataclass(frozen=True)
class Draw:
    """A request for the next ``votes`` votes of a phase, from one of the job's voters."""

    phase: Phase
    votes: int
    voter: int = 0

    def __post_init__(self) -> None:
        check_count("votes", self.votes)


Procedure = Generator[Draw, Tally, R]


@dataclass(frozen=True)
class VoteRequest:
    """Votes for a search: row r is sample ``samples[r]`` of the input at ``sigmas[r]``.

    A ``shape`` stretches each coordinate's noise.
    """

    index: int
    x: NDArray[np.generic]
    sigmas: NDArray[np.float64]
    samples: NDArray[np.int64]
    shape: NDArray[np.float64] | None = None

    @classmethod
    def product(
        cls, index: int, x: NDArray[np.generic], sigmas: Sequence[float], start: int, stop: int
    ) -> VoteRequest:
        """Samples ``start`` to ``stop`` at each of ``sigmas``: rows of one σ are neighbours."""
        samples = np.arange(start, stop)
        repeated = np.repeat(np.asarray(sigmas, np.float64), len(samples))
        return cls(index, x, repeated, np.tile(samples, len(sigmas)))

    def __len__(self) -> int:
        return len(self.sigmas)


def one_draw(draw: Draw) -> Procedure[Tally]:
    """The votes themselves, in one go."""
    return (yield draw)


def asking(voter: int, procedure: Procedure[R]) -> Procedure[R]:
    """The same procedure with its votes cast by another of the job's voters."""
    try:
        draw = next(procedure)
        while True:
            draw = procedure.send((yield replace(draw, voter=voter)))
    except StopIteration as stop:
        answer: R = stop.value
        return answer


@dataclass(frozen=True)
class Job(Generic[R]):
    """The procedure that decides about one input, and the voters that its draws name by their place.

    ``drawn``: votes of the first voter's phases that were drawn before.
    """

    voters: tuple[Voter, ...]
    procedure: Procedure[R]
    drawn: Mapping[Phase, int] = field(default_factory=dict)

    @property
    def index(self) -> int:
        """The input's."""
        return self.voters[0].index


@dataclass(frozen=True)
class Finished(Generic[R]):
    """A procedure's answer, and the worker time its votes took."""

    job: Job[R]
    answer: R
    seconds: float


T = TypeVar("T")


@dataclass
class ActiveInput:
    """An input under way: where its streams stand and what the present draw has gathered."""

    job: Job[Any]
    drawn: dict[tuple[int, Phase], int]
    voter: Voter = field(init=False)
    stream: Stream = field(init=False)
    start: int = 0
    missing: int = 0
    sums: NDArray[np.int64] = field(init=False)
    seconds: float = 0.0

    def begin(self, draw: Draw) -> None:
        """Nothing of this draw is counted yet."""
        self.voter = self.job.voters[draw.voter]
        self.stream = self.voter.stream(draw.phase)
        self.start = self.drawn.get((draw.voter, draw.phase), 0)
        self.drawn[draw.voter, draw.phase] = self.start + draw.votes
        self.missing, self.sums = draw.votes, self.voter.passes.no_votes(draw.votes)

    def tally(self) -> Tally:
        """The present draw, once nothing is missing."""
        return self.voter.passes.tally(self.stream, self.start, self.sums)


@dataclass(frozen=True)
class Block:
    """Votes ``first`` to ``last`` of block ``number`` of the stream of an input's draw."""

    copies: Copies
    stream: Stream
    number: int
    first: int
    last: int
    of: ActiveInput | None = None
    """The input under way that waits for it; not known to other processes."""

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

    def __reduce__(self) -> Any:
        return Block, (self.copies, self.stream, self.number, self.first, self.last)


Round = Sequence[Block | None]
Task = Sequence[Round]


def blocks_of(task: Task) -> list[Block]:
    """A task's blocks, in the order of their results."""
    return [block for one in task for block in one if block is not None]


class Lanes:
    """Blocks waiting for a round, one queue for each place of it.

    Block b of input i waits in queue (i + b) mod places. Queues hold iterators: a draw of any size takes no more memory
    than one of a few votes.
    """

    def __init__(self, layout: Layout) -> None:
        self._lanes: list[deque[Iterator[Block]]] = [deque() for _ in range(layout.slots)]
        self._block = layout.block
        self.waiting = 0

    def add(self, of: ActiveInput) -> None:
        """Queue the input's present draw."""
        start, stop = of.start, of.start + of.missing
        numbers = range(start // self._block, -(-stop // self._block))
        slots = len(self._lanes)
        for offset in range(min(slots, len(numbers))):
            own = numbers[offset::slots]
            lane = self._lanes[(of.stream.index + own[0]) % slots]
            lane.append(self._blocks(of, of.stream, own, start, stop))
        self.waiting += len(numbers)

    def _blocks(
        self, of: ActiveInput, stream: Stream, numbers: range, start: int, stop: int
    ) -> Iterator[Block]:
        for number in numbers:
            origin = number * self._block
            first, last = max(start - origin, 0), min(stop - origin, self._block)
            yield Block(of.voter.copies, stream, number, first, last, of)

    def next_round(self) -> list[Block | None]:
        """One block from every queue that has any."""
        return [self._take(lane) for lane in self._lanes]

    def _take(self, lane: deque[Iterator[Block]]) -> Block | None:
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
