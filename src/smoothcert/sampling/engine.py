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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Grid, Noise, on_grid
from smoothcert.sampling.backends import BACKENDS, Cast
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import ActiveInput, Block, Lanes, OwnBlock, blocks_of
from smoothcert.sampling.models.prepared import Prepared
from smoothcert.sampling.passes import Passes, checked_input
from smoothcert.sampling.procedures import Finished, Job
from smoothcert.sampling.streams import NoisyCopies
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

R = TypeVar("R")
_Done = queue.SimpleQueue[tuple[list[OwnBlock], Future[list[Cast]]]]

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
        waiting = iter(jobs)
        layout = self.passes.layout
        lanes = Lanes(layout)
        done: _Done = queue.SimpleQueue()
        most = self.execution.rounds_per_task(layout.rows, math.prod(self.passes.prepared.input_shape))
        with BACKENDS[self.execution.backend](self.passes, self.execution) as voters:
            width = voters.count * _TASKS_AHEAD
            in_flight = 0
            while True:
                wanted = (width - in_flight) * (most if self.execution.batch else 1) * layout.slots
                while lanes.waiting < wanted and (job := next(waiting, None)) is not None:
                    # The input is checked once, before any vote is spent on it.
                    copies = self._copies(job.index, job.x, job.noise)
                    yield from self._advance(ActiveInput(job, copies, dict(job.drawn)), None, lanes)
                # Few votes are shared out among the workers.
                rounds = min(most, -(-lanes.waiting // (width * layout.slots)))
                while in_flight < width and lanes.waiting:
                    task = [lanes.next_round() for _ in range(rounds) if lanes.waiting]
                    blocks = blocks_of(task)
                    voters.submit(task).add_done_callback(partial(_put, done, blocks))
                    in_flight += 1
                if not in_flight:
                    return
                blocks, cast = done.get()
                casts = cast.result()
                in_flight -= 1
                if on_votes is not None:
                    on_votes(sum(block.votes for block in blocks))
                for block, (sums, seconds) in zip(blocks, casts, strict=True):
                    active = block.of
                    active.seconds += seconds
                    active.sums += sums
                    active.missing -= block.votes
                    if not active.missing:
                        yield from self._advance(active, active.tally(), lanes)

    def first_copies(
        self, index: int, x: NDArray[Any], noise: Noise, phase: Phase, count: int
    ) -> NDArray[np.float64]:
        """The first noisy copies of an input in one of its streams, as the model sees them: a pass of them at most."""
        layout = self.passes.layout
        stream, last = Stream(self.seed, index, phase), min(count, layout.block, layout.chunk)
        return self.passes.drawn(Block(self._copies(index, x, noise), stream, 0, 0, last))

    def _copies(self, index: int, x: NDArray[Any], noise: Noise) -> NoisyCopies:
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


def _put(done: _Done, blocks: list[OwnBlock], cast: Future[list[Cast]]) -> None:
    done.put((blocks, cast))
