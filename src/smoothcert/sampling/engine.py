"""The engine: procedures ask for votes, workers cast them, and nothing but the plan decides what they are.

A *procedure* is a generator for one input: it yields :class:`Draw` requests, receives tallies, and returns its
answer. Requests are cut into blocks, and blocks make rounds: several to a pass of a small model, from whichever
inputs are waiting, or several passes to a block of a larger one. A finished input's place is refilled at once.

Same answers whatever the batch, the workers and the order of inputs, because a block's random state follows from
(seed, input, phase, block), every pass has the same shape, and a block always sits in the same place of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Grid, on_grid
from smoothcert.sampling.execution import Execution, check_device
from smoothcert.sampling.lanes import Lanes, Place
from smoothcert.sampling.models.base import Prepared
from smoothcert.sampling.procedures import Finished, Job
from smoothcert.sampling.workers import Workers
from smoothcert.tally import Stream, Tally

R = TypeVar("R")

_TASKS_AHEAD = 2  # tasks kept ready for each worker, so that none waits for the coordinator


class Engine:
    """Runs procedures for many inputs at once and hands out their answers as they come."""

    def __init__(
        self, prepared: Prepared, votes: VoteKind, seed: int, execution: Execution, grid: Grid
    ) -> None:
        if votes == "soft" and prepared.kind == "labels":
            raise InvalidValueError("soft votes need scores or probabilities, but the model returns labels")
        check_device(execution.device)
        self.prepared = prepared
        self.votes: VoteKind = votes
        self.seed = seed
        self.execution = execution
        self.grid = grid

    def run(
        self, jobs: Iterable[Job[R]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Finished[R]]:
        """Answers as they come; inputs are admitted only as fast as the workers need them.

        ``on_votes`` hears how many votes each finished task has counted.
        """
        waiting = iter(jobs)
        layout = self.prepared.numerics.layout()
        lanes, workers = Lanes(layout), Workers(self.prepared, self.votes)
        count = self.prepared.workers(self.execution.worker_count())
        width = count * _TASKS_AHEAD
        rounds = self.execution.rounds_per_task(layout.rows)
        with workers.running(count):
            in_flight = 0
            while True:
                wanted = (width - in_flight) * rounds * layout.slots
                while lanes.waiting < wanted and (job := next(waiting, None)) is not None:
                    yield from self._advance(self._admit(job), None, lanes)
                while in_flight < width and lanes.waiting:
                    workers.give([lanes.next_round() for _ in range(rounds) if lanes.waiting])
                    in_flight += 1
                if not in_flight:
                    return
                casts = workers.take()
                in_flight -= 1
                if on_votes is not None:
                    on_votes(sum(cast.block.last - cast.block.first for cast in casts))
                for cast in casts:
                    place = cast.block.place
                    place.seconds += cast.seconds
                    place.sums += cast.sums
                    place.missing -= cast.block.last - cast.block.first
                    if not place.missing:
                        yield from self._advance(place, place.tally(), lanes)

    def _admit(self, job: Job[R]) -> Place:
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
        noise, numerics = on_grid(job.noise, self.grid, x.shape), self.prepared.numerics
        point = noise.point(x)
        noise.check_exact(point, numerics.noise_dtype_name, job.index)
        dtype = numerics.noise_dtype()
        steps = torch.from_numpy(point.steps).to(dtype)
        return Place(job, steps, noise.divisor(dtype), noise.sampler, dict(job.drawn))

    def _advance(self, place: Place, tally: Tally | None, lanes: Lanes) -> Iterator[Finished[R]]:
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
        lanes.add(place, start, start + draw.votes)
