"""Threads of this process: the default, since torch releases the interpreter lock in its kernels.

Where votes are cast on other devices, each has a replica of the model: a thread launches its tasks, another collects
counts. So the next task is on its way while a device works on one, and only counts are waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import ClassVar

from smoothcert.engine.backends.workers import BACKENDS, Cast, Voters, WorkerSpec
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes, Pending
from smoothcert.engine.schedule import Task
from smoothcert.errors import InvalidValueError
from smoothcert.threads import worker_pool


class _Device:
    """One device: its passes, its two threads, and how many tasks it has."""

    def __init__(self, passes: Passes) -> None:
        self._passes, self._launching, self._collecting = passes, worker_pool(1), worker_pool(1)
        self._lock, self._collected = threading.Lock(), 0.0
        self.tasks = 0

    def submit(self, task: Task) -> Future[list[Cast]]:
        """Take a task; its counts are waited for in the order in which tasks are launched."""
        self._count(1)
        launched = self._launching.submit(self._passes.launch, task)
        collected = self._collecting.submit(self._collect, launched)
        collected.add_done_callback(lambda _: self._count(-1))
        return collected

    def close(self) -> None:
        for pool in (self._launching, self._collecting):  # first the one that hands on to the other
            pool.shutdown(cancel_futures=True)

    def _collect(self, launched: Future[Pending]) -> list[Cast]:
        casts = launched.result().collect(since=self._collected)
        self._collected = time.perf_counter()
        return casts

    def _count(self, more: int) -> None:
        with self._lock:
            self.tasks += more


class Devices:
    """One worker a device; a task goes to the one that has the fewest.

    A replica that answers a fixed pass with one bit of difference is refused.
    """

    far: ClassVar[bool] = False

    def __init__(self, passes: Passes, execution: Execution) -> None:
        names = execution.devices()
        if execution.workers not in (None, len(names)):
            raise InvalidValueError(
                f"one worker serves each device, here {len(names)}, got workers={execution.workers}: leave --workers "
                "out"
            )
        # One, where copies of the model would disturb one another.
        fitting = passes.prepared.workers(len(names))
        self._devices = [_Device(one) for one in _replicas(passes, names[:fitting])]
        self.count = len(self._devices)

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks."""
        return min(self._devices, key=lambda device: device.tasks).submit(task)

    def current(self) -> bool:
        """Replicas are of a module that was captured or copied."""
        return True

    def close(self) -> None:
        """End the threads of every device."""
        for device in self._devices:
            device.close()


def _replicas(passes: Passes, names: Sequence[str]) -> list[Passes]:
    if not passes.on_device:
        raise InvalidValueError(
            f"several devices need noise that is drawn on them, got devices {', '.join(names)} and generator "
            f"{passes.prepared.numerics.generator}: name one device, or use --generator philox"
        )
    return [passes, *(WorkerSpec.of(passes, name).open() for name in names[1:])]


class ThreadVoters:
    """Threads with one OpenMP thread each."""

    far: ClassVar[bool] = False

    def __init__(self, passes: Passes) -> None:
        self._passes, self._pool = passes, worker_pool(passes.workers)
        self.count = passes.workers

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks."""
        return self._pool.submit(self._passes.cast_task, task)

    def current(self) -> bool:
        """They evaluate it here."""
        return True

    def close(self) -> None:
        """Drop tasks that aren't begun and end the threads."""
        self._pool.shutdown(cancel_futures=True)


@BACKENDS.register("threads")
def threads(passes: Passes, execution: Execution) -> Voters:
    """Worker threads with one OpenMP thread each; two for each device where votes are cast on several, or on others."""
    return Devices(passes, execution) if _feeds_devices(passes, execution) else ThreadVoters(passes)


def _feeds_devices(passes: Passes, execution: Execution) -> bool:
    """Whether the model computes elsewhere; a function chooses its own device, whatever was asked for."""
    if passes.prepared.device.partition(":")[0] != execution.device_kind:
        return False
    drawn_there = passes.on_device and execution.device_kind != "cpu"
    return drawn_there or len(execution.devices()) > 1
