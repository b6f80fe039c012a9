"""The engine: procedures ask for votes, passes cast them, and nothing but the plan decides what they are.

A *procedure* is a generator for one input: it yields :class:`Draw` requests, receives tallies, and returns its
answer. Requests are cut into blocks, and blocks make rounds: several to a pass of a small model, from whichever
inputs are waiting, or several passes to a block of a larger one. A finished input's place is refilled at once.

Same answers whatever the batch, the workers and the order of inputs, because a block's random state follows from
(seed, input, phase, block), every pass has the same shape, and a block always sits in the same place of it.
"""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError, SmoothcertError
from smoothcert.noise import Grid, Noise, on_grid
from smoothcert.sampling.backends import BACKENDS, Cast
from smoothcert.sampling.checking import FIRST_INPUTS, CheckedInput, Recast
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import ActiveInput, Block, Lanes, OwnBlock, blocks_of
from smoothcert.sampling.models.prepared import Prepared
from smoothcert.sampling.passes import Passes, checked_input
from smoothcert.sampling.procedures import Finished, Job
from smoothcert.sampling.streams import NoisyCopies
from smoothcert.sampling.threads import in_a_worker, worker_threads
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

R = TypeVar("R")
_OwnTask = Sequence[Sequence[OwnBlock | None]]
_Done = queue.SimpleQueue[tuple[_OwnTask, Future[list[Cast]]]]

MOST_SOFT_VOTES = ((1 << 63) - 1) // SOFT_UNIT
"""That can be added up as whole numbers of 64 bits."""

_TASKS_AHEAD = 2  # tasks kept ready for each worker, so that none waits for the coordinator


class Engine:
    """Runs procedures for many inputs at once and hands out their answers as they come."""

    def __init__(
        self, prepared: Prepared, votes: VoteKind, seed: int, execution: Execution, grid: Grid
    ) -> None:
        execution.check_devices()
        self.passes = Passes(prepared, votes, execution)
        self.seed = seed
        self.execution = execution
        self.grid = grid

    def run(
        self, jobs: Iterable[Job[R]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Finished[R]]:
        """Answers as they come; inputs are admitted only as fast as the workers need them.

        ``on_votes`` is called with the number of votes each finished task has counted.
        """
        passes, layout, rows = self.passes, self.passes.layout, self.passes.prepared.rows
        waiting = _Ahead(jobs)
        if rows.opening is None:
            first = self._first_inputs(waiting)
            in_a_worker(lambda: rows.open(passes, self.seed, first))
        lanes = Lanes(layout)
        done: _Done = queue.SimpleQueue()
        most = self.execution.rounds_per_task(layout.rows, math.prod(passes.prepared.input_shape))
        with (
            BACKENDS[self.execution.backend](passes, self.execution) as voters,
            _Checking(passes, self.seed) as checking,
        ):
            width = voters.count * _TASKS_AHEAD
            in_flight = 0
            while True:
                wanted = (width - in_flight) * (most if self.execution.batch else 1) * layout.slots
                while lanes.waiting < wanted and (job := next(waiting, None)) is not None:
                    # The input is checked once, before any vote is spent on it.
                    copies = self.copies(job.index, job.x, job.noise)
                    checking.admit(CheckedInput(job.index, copies))
                    yield from self._advance(ActiveInput(job, copies, dict(job.drawn)), None, lanes)
                # Few votes are shared out among the workers.
                rounds = min(most, -(-lanes.waiting // (width * layout.slots)))
                while in_flight < width and lanes.waiting:
                    task: _OwnTask = [lanes.next_round() for _ in range(rounds) if lanes.waiting]
                    voters.submit(task).add_done_callback(partial(_put, done, task))
                    in_flight += 1
                if not in_flight:
                    checking.finish()
                    return
                task, cast = done.get()
                casts = cast.result()
                in_flight -= 1
                blocks = blocks_of(task)
                votes = sum(block.votes for block in blocks)
                checking.counted(task, [sums for sums, _ in casts], votes)
                if on_votes is not None:
                    on_votes(votes)
                for block, (sums, seconds) in zip(blocks, casts, strict=True):
                    active = block.of
                    active.seconds += seconds
                    active.sums += sums
                    active.missing -= block.votes
                    if not active.missing:
                        yield from self._advance(active, active.tally(), lanes)

    def _first_inputs(self, waiting: _Ahead[R]) -> list[CheckedInput]:
        """Those that come first; what is wrong with one of them is said in its turn."""
        found = {}
        for job in waiting.peek(FIRST_INPUTS):
            with suppress(SmoothcertError):
                found[job.index] = CheckedInput(job.index, self.copies(job.index, job.x, job.noise))
        return list(found.values())

    def first_copies(
        self, index: int, x: NDArray[Any], noise: Noise, phase: Phase, count: int
    ) -> NDArray[np.float64]:
        """The first noisy copies of an input in one of its streams, as the model sees them: a pass of them at most."""
        layout = self.passes.layout
        stream, last = Stream(self.seed, index, phase), min(count, layout.block, layout.chunk)
        return self.passes.drawn(Block(self.copies(index, x, noise), stream, 0, 0, last))

    def copies(self, index: int, x: NDArray[Any], noise: Noise) -> NoisyCopies:
        """What draws the noisy copies of an input, once it is known to be one."""
        passes = self.passes
        checked = checked_input(index, x, passes.prepared.input_shape)
        grid = on_grid(noise, self.grid, checked.shape)
        point = grid.point(checked)
        grid.check_exact(point, passes.prepared.numerics.noise_dtype_name, index)
        return NoisyCopies(grid, torch.from_numpy(point.steps).to(passes.dtype))

    def _advance(self, active: ActiveInput, tally: Tally | None, lanes: Lanes) -> Iterator[Finished[R]]:
        """Give a procedure the votes it asked for; queue its next draw, or hand out its answer."""
        procedure = active.job.procedure
        try:
            draw = next(procedure) if tally is None else procedure.send(tally)
        except StopIteration as stop:
            yield Finished(active.job, stop.value, active.seconds)
            return
        if self.passes.votes == "soft" and draw.votes > MOST_SOFT_VOTES:
            raise InvalidValueError(
                f"{draw.votes} soft votes at once would add up to more than 64 bits hold: at most {MOST_SOFT_VOTES}"
            )
        start = active.drawn.get(draw.phase, 0)
        active.drawn[draw.phase] = start + draw.votes
        active.stream = Stream(self.seed, active.job.index, draw.phase)
        active.start, active.missing = start, draw.votes
        rows = 3 if self.passes.votes == "soft" else 1
        active.sums = np.zeros((rows, self.passes.prepared.classes), dtype=np.int64)
        lanes.add(active, start, start + draw.votes)


def _put(done: _Done, task: _OwnTask, cast: Future[list[Cast]]) -> None:
    done.put((task, cast))


class _Ahead(Generic[R]):
    """Jobs, the first of which can be looked at before their turn."""

    def __init__(self, jobs: Iterable[Job[R]]) -> None:
        self._jobs = iter(jobs)
        self._head: deque[Job[R]] = deque()
        self._failed: Exception | None = None

    def peek(self, count: int) -> Iterator[Job[R]]:
        """The next of them; an error that ends them early is raised in its turn."""
        while len(self._head) < count:
            try:
                self._head.append(next(self._jobs))
            except StopIteration:
                break
            except Exception as error:
                self._failed = error
                break
        return iter(self._head)

    def __iter__(self) -> _Ahead[R]:
        return self

    def __next__(self) -> Job[R]:
        if self._head:
            return self._head.popleft()
        if self._failed is not None:
            raise self._failed
        return next(self._jobs)


class _Checking:
    """The check that goes on beside the votes of one run, in a thread of its own; what it finds ends the run."""

    def __init__(self, passes: Passes, seed: int) -> None:
        self._passes, self._seed, self._rows = passes, seed, passes.prepared.rows
        self._recast = Recast(passes.layout.slots)
        self._admitted = 0
        self._under_way: Future[None] | None = None

    def __enter__(self) -> _Checking:
        self._threads = worker_threads(1)
        self._pool = self._threads.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._threads.__exit__(*raised)

    def admit(self, one: CheckedInput) -> None:
        """An input that votes are about to be cast on."""
        self._admitted += 1
        self._rows.add(one)

    def counted(self, task: _OwnTask, sums: Sequence[NDArray[np.int64]], votes: int) -> None:
        """Votes that came; they pay for looking at some again."""
        self._recast.add(task, sums)
        due = self._rows.due(votes, self._passes.layout)
        if self._under_way is not None and self._under_way.done():
            self._wait()
        if due and self._under_way is None:
            self._begin()

    def finish(self) -> None:
        """Wait for what is under way; where there were more inputs than the opening check saw, look once more."""
        self._wait()
        if self._admitted > FIRST_INPUTS:
            self._begin()
            self._wait()

    def _begin(self) -> None:
        again = self._recast.chosen()

        def look() -> None:
            with torch.inference_mode():
                self._rows.look(self._passes, self._seed)
                if again is not None:
                    again(self._passes)

        self._under_way = self._pool.submit(look)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None
