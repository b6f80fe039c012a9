"""Leases: a task as it is sent to a worker in another process or on another machine, and the worker's side of it.

A lease is a few ranges of votes and the grid points they are of, some kilobytes; noise is drawn where the model is.
Its votes follow from what it says alone, so one that was lost with its worker is sent again, to whichever is idle.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import ModelError
from smoothcert.noise import Grid, Noise, on_grid
from smoothcert.sampling.backends.base import Cast
from smoothcert.sampling.backends.sending import sendable
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Block, Task
from smoothcert.sampling.models.base import BaseClassifier, Prepared
from smoothcert.sampling.models.probes import probe_rows
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.streams import NoisyCopies
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.tally import Stream


@dataclass(frozen=True)
class SentInput:
    """A grid point, in steps, and the noise it is seen under."""

    noise: Noise
    steps: NDArray[np.floating]


@dataclass(frozen=True)
class SentBlock:
    """A block of the lease's input number ``of``."""

    of: int
    stream: Stream
    number: int
    first: int
    last: int


@dataclass(frozen=True)
class Lease:
    """A task in numbers."""

    inputs: tuple[SentInput, ...]
    rounds: tuple[tuple[SentBlock | None, ...], ...]

    @classmethod
    def of(cls, task: Task) -> Lease:
        """Each input once, whatever the number of its blocks."""
        places: dict[int, int] = {}
        inputs: list[SentInput] = []

        def sent(block: Block | None) -> SentBlock | None:
            if block is None:
                return None
            copies = block.copies
            if id(copies) not in places:
                places[id(copies)] = len(inputs)
                inputs.append(SentInput(copies.noise, copies.steps.numpy()))
            return SentBlock(places[id(copies)], block.stream, block.number, block.first, block.last)

        rounds = tuple(tuple(sent(block) for block in one) for one in task)
        return cls(tuple(inputs), rounds)

    def task(self, grid: Grid, shape: tuple[int, ...], dtype: torch.dtype) -> Task:
        """The task it was made of."""
        copies = []
        for one in self.inputs:
            noise = on_grid(one.noise, grid, shape)
            steps = torch.from_numpy(np.array(one.steps)).to(dtype)
            copies.append(NoisyCopies(one.noise, steps, noise.divisor(dtype), noise.sampler))
        return [
            [None if b is None else Block(copies[b.of], b.stream, b.number, b.first, b.last) for b in one]
            for one in self.rounds
        ]


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs to know before its first lease."""

    base: BaseClassifier
    numerics: Numerics
    input_shape: tuple[int, ...]
    classes: int
    order: tuple[int, ...] | None
    device: str
    votes: VoteKind
    grid: Grid
    answers: str
    """A hash of what the model answers to a fixed pass where the plan was made, to the last bit."""

    @classmethod
    def of(cls, passes: Passes, device: str, grid: Grid) -> WorkerSpec:
        """For workers that do what these passes do."""
        prepared = passes.prepared
        return cls(
            prepared.base,
            prepared.numerics,
            prepared.input_shape,
            prepared.classes,
            prepared.order,
            device,
            passes.votes,
            grid,
            _answers(prepared),
        )

    def open(self) -> Worker:
        """A worker, after it has answered the fixed pass as the others do."""
        prepared = self.base.reopen(self.numerics, self.input_shape, self.device, self.classes)
        prepared = replace(prepared, order=self.order)
        if _answers(prepared) != self.answers:
            raise ModelError(
                f"{self.base.name} answers otherwise on a worker than where the work was begun, in a last bit at "
                "least: the answers of a run must not depend on who cast the votes. Use the same versions of Python "
                "packages, and the same kind of processor, for all workers"
            )
        return Worker(Passes(prepared, self.votes, Execution(self.device, 1)), self.grid)


class LeasedVoters(ABC):
    """Voters that are sent leases, each again until its results have come back once."""

    count: int

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The task's results; its lease is sent again, to another worker, when the one that has it is lost."""
        promised: Future[list[Cast]] = Future()
        self._send(Lease.of(task), promised)
        return promised

    @abstractmethod
    def _send(self, lease: Lease, promised: Future[list[Cast]]) -> None:
        """Send a lease and keep the promise when its results come."""


class Worker:
    """Casts the votes of leases, one at a time."""

    def __init__(self, passes: Passes, grid: Grid) -> None:
        self.passes, self._grid = passes, grid

    def cast(self, lease: Lease) -> list[Cast]:
        """The results of the lease's blocks, in their order."""
        prepared = self.passes.prepared
        with one_openmp_thread():
            return self.passes.cast_task(lease.task(self._grid, prepared.input_shape, self.passes.dtype))


class RemoteWorker:
    """A worker elsewhere. An error while the model is opened is kept for the first question: it must be told, and
    mustn't look like a worker that was lost."""

    def __init__(self, spec: WorkerSpec | ModelError) -> None:
        self._worker: Worker | ModelError
        try:
            self._worker = spec if isinstance(spec, ModelError) else spec.open()
        except Exception as error:
            self._worker = sendable(error)

    def begin(self) -> ModelError | None:
        """What is wrong, if anything."""
        return self._worker if isinstance(self._worker, ModelError) else None

    def cast(self, lease: Lease) -> list[Cast] | ModelError:
        """The results of a lease, or what went wrong: an exception would come back wrapped."""
        if isinstance(self._worker, ModelError):
            return self._worker
        try:
            return self._worker.cast(lease)
        except Exception as error:
            return sendable(error)


def _answers(prepared: Prepared) -> str:
    numerics = prepared.numerics
    rows = probe_rows(numerics.layout().chunk, prepared.input_shape, numerics.noise_dtype())
    with one_openmp_thread(), torch.inference_mode():
        found = prepared.outputs(rows).cpu()
    digest = hashlib.sha256(f"{found.dtype} {tuple(found.shape)}".encode())
    digest.update(found.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
