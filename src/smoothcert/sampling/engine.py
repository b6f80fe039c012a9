"""The engine: procedures ask for votes, workers cast them, and nothing but the plan decides what they are.

A *procedure* is a generator for one input: it yields :class:`Draw` requests, receives tallies, and returns its
answer. Requests are cut into blocks; a pass of the model carries ``chunk / block`` of them, from whichever
inputs are waiting, so a small model is fed from several inputs and a finished input's place is refilled.

Same answers whatever the batch, the workers and the order of inputs, because a block's random state follows from
(seed, input, phase, block), every pass has the same shape, and a block always sits in the same place of it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError, ModelError, check_count
from smoothcert.noise import Noise
from smoothcert.sampling.ballots import Ballots, read_ballots
from smoothcert.sampling.execution import Execution, check_device
from smoothcert.sampling.models.base import Prepared
from smoothcert.sampling.streams import BlockGenerator
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.tally import Phase, Stream, Tally

R = TypeVar("R")

_TASKS_AHEAD = 2  # tasks kept ready for each worker, so that none waits for the coordinator


@dataclass(frozen=True)
class Draw:
    """A request for the next ``votes`` votes of a phase."""

    phase: Phase
    votes: int

    def __post_init__(self) -> None:
        check_count("votes", self.votes)


Procedure = Generator[Draw, Tally, R]


@dataclass(frozen=True)
class Job(Generic[R]):
    """One input and the procedure that decides about it. ``index`` names its random streams."""

    index: int
    x: NDArray[np.generic]
    noise: Noise
    procedure: Procedure[R]


@dataclass(frozen=True)
class Finished(Generic[R]):
    """A procedure's answer, and the worker time its votes took."""

    job: Job[R]
    answer: R
    seconds: float


@dataclass
class _Place(Generic[R]):
    """An input under way: where its streams stand and what the draw in hand has gathered."""

    job: Job[R]
    x: torch.Tensor
    drawn: dict[Phase, int] = field(default_factory=dict)
    stream: Stream = field(init=False)
    start: int = 0
    missing: int = 0
    sums: NDArray[np.int64] = field(init=False)
    seconds: float = 0.0


@dataclass(frozen=True)
class _Block:
    """Votes ``first`` to ``last`` of block ``number`` of the stream of a place's draw."""

    place: _Place[object]
    stream: Stream
    number: int
    first: int
    last: int


_Pass = list[_Block | None]


class _Lanes:
    """Blocks waiting for a pass, one lane for each slot of it.

    Block b of input i waits in lane (i + b) mod slots, so that it sits in the same rows of a pass whoever its
    neighbours are. Lanes hold iterators: a draw of any size takes no more memory than one of a few votes.
    """

    def __init__(self, slots: int, block: int) -> None:
        self._lanes: list[deque[Iterator[_Block]]] = [deque() for _ in range(slots)]
        self._block = block
        self.waiting = 0

    def add(self, place: _Place[object], start: int, stop: int) -> None:
        """Queue votes ``start`` to ``stop`` of the place's stream."""
        numbers = range(start // self._block, -(-stop // self._block))
        slots = len(self._lanes)
        for offset in range(min(slots, len(numbers))):
            mine = numbers[offset::slots]
            lane = self._lanes[(place.job.index + mine[0]) % slots]
            lane.append(self._blocks(place, place.stream, mine, start, stop))
        self.waiting += len(numbers)

    def _blocks(
        self, place: _Place[object], stream: Stream, numbers: range, start: int, stop: int
    ) -> Iterator[_Block]:
        for number in numbers:
            origin = number * self._block
            yield _Block(place, stream, number, max(start - origin, 0), min(stop - origin, self._block))

    def next_pass(self) -> _Pass:
        """One block from every lane that has any."""
        return [self._take(lane) for lane in self._lanes]

    def _take(self, lane: deque[Iterator[_Block]]) -> _Block | None:
        while lane:
            block = next(lane[0], None)
            if block is not None:
                self.waiting -= 1
                return block
            lane.popleft()
        return None


@dataclass(frozen=True)
class _Cast:
    """What a task brought: for each block its sums, and the seconds it took."""

    blocks: list[tuple[_Block, NDArray[np.int64], float]]


class Engine:
    """Runs procedures for many inputs on worker threads, each with one OpenMP thread and one small buffer."""

    def __init__(self, prepared: Prepared, votes: VoteKind, seed: int, execution: Execution) -> None:
        if votes == "soft" and prepared.kind == "labels":
            raise InvalidValueError("soft votes need scores or probabilities, but the model returns labels")
        check_device(execution.device)
        self.prepared = prepared
        self.votes: VoteKind = votes
        self.seed = seed
        self.execution = execution
        self._slots, self._block = prepared.numerics.shape()

    def run(
        self, jobs: Iterable[Job[R]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Finished[R]]:
        """Answers as they come; inputs are admitted only as fast as the workers need them.

        ``on_votes`` hears how many votes each finished task has counted.
        """
        waiting = iter(jobs)
        lanes = _Lanes(self._slots, self._block)
        width = self.execution.worker_count() * _TASKS_AHEAD
        passes = self.execution.passes_per_task(self._slots * self._block)
        with self._workers() as (tasks, results):
            in_flight = 0
            while True:
                wanted = (width - in_flight) * passes * self._slots
                while lanes.waiting < wanted and (job := next(waiting, None)) is not None:
                    yield from self._advance(self._admit(job), None, lanes)
                while in_flight < width and lanes.waiting:
                    tasks.put([lanes.next_pass() for _ in range(passes) if lanes.waiting])
                    in_flight += 1
                if not in_flight:
                    return
                cast = results.get()
                in_flight -= 1
                if isinstance(cast, BaseException):
                    raise cast
                if on_votes is not None:
                    on_votes(sum(block.last - block.first for block, _, _ in cast.blocks))
                for block, sums, seconds in cast.blocks:
                    place: _Place[R] = block.place  # type: ignore[assignment]
                    place.seconds += seconds
                    place.sums += sums
                    place.missing -= block.last - block.first
                    if not place.missing:
                        yield from self._advance(place, self._tally(place), lanes)

    def _admit(self, job: Job[R]) -> _Place[R]:
        """Check the input once, before any vote is spent on it."""
        x = np.asarray(job.x)
        if x.shape != self.prepared.input_shape:
            raise InvalidValueError(
                f"input {job.index} has shape {x.shape}, the model was prepared for {self.prepared.input_shape}"
            )
        if not (np.issubdtype(x.dtype, np.number) or x.dtype == bool) or np.iscomplexobj(x):
            raise InvalidValueError(f"input {job.index} must hold real numbers, got dtype {x.dtype}")
        if not np.isfinite(x).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            raise InvalidValueError(
                f"input {job.index} holds {x[where]} at position {where}; inputs must be finite"
            )
        return _Place(
            job, torch.from_numpy(np.array(x, dtype=np.float64)).to(self.prepared.numerics.noise_dtype())
        )

    def _advance(self, place: _Place[R], tally: Tally | None, lanes: _Lanes) -> Iterator[Finished[R]]:
        """Give a procedure the votes it asked for; queue its next draw, or hand out its answer."""
        procedure = place.job.procedure
        try:
            draw = next(procedure) if tally is None else procedure.send(tally)
        except StopIteration as stop:
            yield Finished(place.job, stop.value, place.seconds)
            return
        start = place.drawn.get(draw.phase, 0)
        place.drawn[draw.phase] = start + draw.votes
        place.stream = Stream(self.seed, place.job.index, draw.phase)
        place.start, place.missing = start, draw.votes
        place.sums = np.zeros((3 if self.votes == "soft" else 1, self.prepared.classes), dtype=np.int64)
        lanes.add(place, start, start + draw.votes)  # type: ignore[arg-type]  # lanes don't read answers

    def _tally(self, place: _Place[R]) -> Tally:
        rows = [tuple(int(v) for v in row) for row in place.sums]
        stop = place.start + sum(rows[0])
        return Tally(place.stream, place.start, stop, rows[0], *rows[1:])

    @contextmanager
    def _workers(
        self,
    ) -> Iterator[tuple[queue.SimpleQueue[list[_Pass] | None], queue.SimpleQueue[_Cast | BaseException]]]:
        tasks: queue.SimpleQueue[list[_Pass] | None] = queue.SimpleQueue()
        results: queue.SimpleQueue[_Cast | BaseException] = queue.SimpleQueue()
        with one_openmp_thread():
            threads = [
                threading.Thread(target=self._work, args=(tasks, results), daemon=True, name=f"votes-{i}")
                for i in range(self.execution.worker_count())
            ]
            for thread in threads:
                thread.start()
            try:
                yield tasks, results
            finally:
                # On an error or a closed iterator tasks may still be queued: drop them, then let everyone go.
                while not tasks.empty():
                    tasks.get_nowait()
                for _ in threads:
                    tasks.put(None)
                for thread in threads:
                    thread.join()

    def _work(
        self,
        tasks: queue.SimpleQueue[list[_Pass] | None],
        results: queue.SimpleQueue[_Cast | BaseException],
    ) -> None:
        dtype = self.prepared.numerics.noise_dtype()
        generator = BlockGenerator()
        with torch.inference_mode():
            blocks = torch.zeros((self._slots, self._block, *self.prepared.input_shape), dtype=dtype)
            while (task := tasks.get()) is not None:
                try:
                    results.put(_Cast([cast for one in task for cast in self._cast(one, blocks, generator)]))
                except BaseException as error:  # carried to the caller's thread, which raises it
                    results.put(error)

    def _cast(
        self, one: _Pass, blocks: torch.Tensor, generator: BlockGenerator
    ) -> list[tuple[_Block, NDArray[np.int64], float]]:
        """One pass of the model: draw each block's noise, add its input, count its votes."""
        began = time.perf_counter()
        filled = [(slot, block) for slot, block in enumerate(one) if block is not None]
        for slot, block in filled:
            noisy = blocks[slot]
            block.place.job.noise.fill(noisy, generator.seek(block.stream, block.number))
            noisy.add_(block.place.x)
        for slot in (slot for slot, block in enumerate(one) if block is None):
            # The shape stays; a copy keeps leftovers of other inputs out of the model's checks.
            blocks[slot] = blocks[filled[0][0]]
        ballots = self._ballots(blocks, filled)
        counted = [(block, self._count(ballots, slot, block)) for slot, block in filled]
        share = (time.perf_counter() - began) / len(filled)
        return [(block, sums, share) for block, sums in counted]

    def _ballots(self, blocks: torch.Tensor, filled: list[tuple[int, _Block]]) -> Ballots:
        prepared = self.prepared
        try:
            outputs = prepared.outputs(blocks.flatten(0, 1))
            return read_ballots(outputs, prepared.kind, prepared.classes, self.votes)
        except Exception as error:
            indices = sorted({block.place.job.index for _, block in filled})
            which = f"input {indices[0]}" if len(indices) == 1 else f"one of the inputs {indices}"
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            raise ModelError(f"voting on {which}: {reason}") from error

    def _count(self, ballots: Ballots, slot: int, block: _Block) -> NDArray[np.int64]:
        rows = slice(slot * self._block + block.first, slot * self._block + block.last)
        counts = np.bincount(ballots.labels[rows], minlength=self.prepared.classes)
        if ballots.probabilities is None or ballots.squares is None:
            return counts[np.newaxis]
        return np.stack([counts, ballots.probabilities[rows].sum(0), ballots.squares[rows].sum(0)])
