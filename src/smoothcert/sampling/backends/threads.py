"""Threads of this process: the default, since torch releases the interpreter lock in its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from smoothcert.sampling.backends.base import BACKENDS, Cast, Voters
from smoothcert.sampling.backends.devices import device_voters
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Task
from smoothcert.sampling.passes import Passes


class _Threads:
    def __init__(self, passes: Passes, pool: ThreadPoolExecutor) -> None:
        self._passes, self._pool = passes, pool
        self.count = passes.workers

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        return self._pool.submit(self._passes.cast_task, task)


@BACKENDS.register("threads")
@contextmanager
def threads(passes: Passes, execution: Execution) -> Iterator[Voters]:
    """Worker threads with one OpenMP thread each; two for each device where votes are cast on several, or on others."""
    if _feeds_devices(passes, execution):
        with device_voters(passes, execution) as voters:
            yield voters
    else:
        with passes.threads() as pool:
            yield _Threads(passes, pool)


def _feeds_devices(passes: Passes, execution: Execution) -> bool:
    """Whether the model computes elsewhere; a function chooses its own device, whatever was asked for."""
    if passes.prepared.device.partition(":")[0] != execution.device_kind:
        return False
    drawn_there = passes.on_device is not None and execution.device_kind != "cpu"
    return drawn_there or len(execution.devices()) > 1
