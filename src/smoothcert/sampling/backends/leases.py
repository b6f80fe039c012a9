"""Leases: a task as it is sent to a worker in another process or on another machine, and the worker's side of it.

A lease is a few ranges of votes and the grid points they are of, some kilobytes; noise is drawn where the model is.
Its votes follow from what it says alone, so one that was lost with its worker is sent again, to whichever is idle.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from smoothcert.bounds import VoteKind
from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.sampling.backends.base import Cast
from smoothcert.sampling.backends.sending import sendable
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Task
from smoothcert.sampling.models.prepared import Prepared
from smoothcert.sampling.models.probes import probe_rows
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.threads import in_a_worker


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs to know before its first lease."""

    prepared: Prepared
    device: str
    votes: VoteKind
    rows: torch.Tensor
    """A pass: noisy rows of the run's first inputs, or fixed ones where nothing was looked at yet."""
    answers: str
    """A hash of what the model answers to it where the plan was made, to the last bit."""

    @classmethod
    def of(cls, passes: Passes, device: str) -> WorkerSpec:
        """For workers that do what these passes do."""
        prepared = passes.prepared
        rows = prepared.rows.opening
        if rows is None:
            rows = probe_rows(passes.layout.chunk, prepared.input_shape, passes.dtype)
        return cls(prepared, device, passes.votes, rows, _answers(prepared, rows))

    def open(self) -> Passes:
        """A worker's passes, after it has answered the run's own rows as the others do."""
        prepared = self.prepared.reopened(self.device)
        if _answers(prepared, self.rows) != self.answers:
            raise DependentVotesError(
                f"{prepared.name} answers otherwise on a worker than where the work was begun, in a last bit at least: "
                "the answers of a run must not depend on who cast the votes. If it reads a setting that was changed "
                "after its module was imported, give it that as an argument; else use the same versions of Python "
                "packages, and the same kind of processor, for all workers"
            )
        return Passes(prepared, self.votes, Execution(self.device, 1))


class LeasedVoters(ABC):
    """Voters that are sent leases, each again until its results have come back once."""

    count: int

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The task's results; its lease is sent again, to another worker, when the one that has it is lost."""
        promised: Future[list[Cast]] = Future()
        self._send(task, promised)
        return promised

    @abstractmethod
    def _send(self, lease: Task, promised: Future[list[Cast]]) -> None:
        """Send a lease and keep the promise when its results come."""


class RemoteWorker:
    """A worker elsewhere, which casts the votes of leases one at a time.

    An error while the model is opened is kept for the first question: it must be told, and mustn't look like a worker
    that was lost.
    """

    def __init__(self, spec: WorkerSpec | ModelError) -> None:
        self._passes: Passes | ModelError
        try:
            self._passes = spec if isinstance(spec, ModelError) else spec.open()
        except Exception as error:
            self._passes = sendable(error)

    def begin(self) -> ModelError | None:
        """What is wrong, if anything."""
        return self._passes if isinstance(self._passes, ModelError) else None

    def cast(self, lease: Task) -> list[Cast] | ModelError:
        """The results of a lease's blocks, or what went wrong: an exception would come back wrapped."""
        passes = self._passes
        if isinstance(passes, ModelError):
            return passes
        try:
            return in_a_worker(lambda: passes.cast_task(lease))
        except Exception as error:
            return sendable(error)


def _answers(prepared: Prepared, rows: torch.Tensor) -> str:
    found = in_a_worker(lambda: prepared.outputs(rows.clone())).cpu()
    digest = hashlib.sha256(f"{found.dtype} {tuple(found.shape)}".encode())
    digest.update(found.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
