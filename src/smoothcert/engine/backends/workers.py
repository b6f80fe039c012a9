"""What a backend is: workers that cast the votes of tasks; and those in another process or on another machine.

A task is a few ranges of votes and the grid points they are of, some kilobytes; noise is drawn where the model is. Its
votes follow from what it says alone, so one that was lost with its worker is sent again, to any other. A model is sent
by reference where that can be imported there, else by value.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import types
from collections import ChainMap
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
import torch
import torch.multiprocessing  # lets tensors be sent as memory that processes share
from numpy.typing import NDArray

from smoothcert.bounds.base import VoteKind
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.schedule import Task
from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.extras import require
from smoothcert.models.base import Prepared
from smoothcert.models.outputs import probe_rows
from smoothcert.registry import Registry
from smoothcert.threads import in_a_worker

Cast = tuple[NDArray[np.int64], float]
"""A block's result: its sums, as :meth:`VoteCounts.read` has them, and the seconds it took."""


class Voters(Protocol):
    """Workers. A task is done once, or not at all: a worker that is lost has its task repeated by another."""

    far: ClassVar[bool]
    """Whether they are on other machines."""

    @property
    def count(self) -> int:
        """How many tasks they work on at once."""

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks, in their order."""

    def current(self) -> bool:
        """Whether they still evaluate the caller's function, which may have changed since they were started."""

    def close(self) -> None:
        """Drop tasks that aren't begun and end every worker."""


Backend = Callable[[Passes, Execution], Voters]
"""Starts workers for passes."""


BACKENDS: Registry[Backend] = Registry("backend", "smoothcert.engine.backends")


T = TypeVar("T")


def arriving(one: T, name: str) -> T | ModelError:
    """The same when it arrives, or a ModelError: a process would die of another exception, and so would the next.

    What other processes can't import goes by value; refused where ``name`` can't be sent at all.
    """
    trial = _Trial()
    try:
        trial.dump(one)
        by_value = trial.from_main
    except Exception:  # lambdas and the like; and whatever a model's own methods raise
        by_value = True
    if by_value:
        purpose = f"sending {name}, which is defined where other processes can't import it,"
        cloudpickle = require("cloudpickle", purpose)
        try:
            cloudpickle.dumps(one)
        except Exception as error:  # whatever a model holds may refuse, in its own way
            raise unsendable(name, "processes", error, "use threads (--backend threads), or ") from error
    return cast(T, _Arriving(one, name, by_value))


class _Trial(pickle.Pickler):
    """Finds out whether, and how, something can be sent; tensors always can."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.from_main = False

    def reducer_override(self, one: object) -> Any:
        if isinstance(one, torch.Tensor):
            return int, ()
        if isinstance(one, (type, types.FunctionType)) and one.__module__ == "__main__":
            self.from_main = True
        return NotImplemented


@dataclass(frozen=True)
class _Arriving:
    """Becomes what it holds, or says why it can't; tensors go as shared memory, by value or not."""

    one: object
    name: str
    by_value: bool

    def __reduce__(self) -> Any:
        content = io.BytesIO()
        if self.by_value:
            import cloudpickle

            pickler: Any = cloudpickle.Pickler(content)
            # As multiprocessing's own pickler does; it is asked while a process is being started.
            pickler.dispatch_table = ChainMap(ForkingPickler._extra_reducers, pickler.dispatch_table)  # type: ignore[attr-defined]
        else:
            pickler = ForkingPickler(content)
        pickler.dump(self.one)
        return _arrived, (content.getvalue(), self.name)


def _arrived(content: bytes, name: str) -> object:
    try:
        return pickle.loads(content)
    except Exception as error:
        return ModelError(
            f"{name} was sent to another process and can't be opened there ({type(error).__name__}: {error}): use "
            "threads (--backend threads)"
        )


def unsendable(name: str, where: str, error: Exception, remedy: str = "") -> ModelError:
    """That a model can't be sent, with what stands in the way."""
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return ModelError(
        f"{name} can't be sent to other {where} ({reason}): {remedy}remove what can't be sent, such as open files, "
        "locks and sessions"
    )


def sendable(error: Exception) -> ModelError:
    """An error of a worker's as one that survives being sent: exceptions of foreign classes may not."""
    if type(error) in (ModelError, DependentVotesError):
        assert isinstance(error, ModelError)
        return error
    return ModelError(f"a worker failed ({type(error).__name__}: {error})")


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs to know before its first task."""

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
        rows = passes.checked.opening
        if rows is None:
            rows = probe_rows(passes.layout.chunk, prepared.input_shape, passes.dtype)
        return cls(prepared, device, passes.votes, rows, _answers(prepared, rows))

    def current(self, prepared: Prepared) -> bool:
        """Whether the caller's function still gives the answers that the workers were started with."""
        return _answers(prepared, self.rows) == self.answers

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


class RemoteWorker:
    """A worker elsewhere, which casts the votes of tasks one at a time.

    An error while the model is opened is kept for the first question: it must be told, and mustn't look like a worker
    that was lost.
    """

    def __init__(self, spec: WorkerSpec | ModelError) -> None:
        self._passes: Passes | ModelError
        try:
            self._passes = spec if isinstance(spec, ModelError) else spec.open()
        except Exception as error:
            self._passes = sendable(error)

    def cast(self, task: Task) -> list[Cast] | ModelError:
        """The results of a task's blocks, or what went wrong: an exception would come back wrapped."""
        passes = self._passes
        if isinstance(passes, ModelError):
            return passes
        try:
            return in_a_worker(lambda: passes.cast_task(task))
        except Exception as error:
            return sendable(error)


def _answers(prepared: Prepared, rows: torch.Tensor) -> str:
    found = in_a_worker(lambda: prepared.outputs(rows.clone())).cpu()
    digest = hashlib.sha256(f"{found.dtype} {tuple(found.shape)}".encode())
    digest.update(found.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
