"""Devices of this machine, with a replica of the model on each: a thread launches its tasks, another collects counts.

So the next task is on its way while a device works on one, and only counts are waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from smoothcert.errors import InvalidValueError
from smoothcert.sampling.backends.base import Cast, Voters
from smoothcert.sampling.backends.leases import WorkerSpec
from smoothcert.sampling.device import DevicePasses, Pending
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Task
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.threads import worker_threads


class _Device:
    """One device: its passes, its two threads, and how many tasks it has."""

    def __init__(
        self, passes: DevicePasses, launching: ThreadPoolExecutor, collecting: ThreadPoolExecutor
    ) -> None:
        self._passes, self._launching, self._collecting = passes, launching, collecting
        self._lock, self._collected = threading.Lock(), 0.0
        self.tasks = 0

    def submit(self, task: Task) -> Future[list[Cast]]:
        """Take a task; its counts are waited for in the order in which tasks are launched."""
        self._count(1)
        launched = self._launching.submit(self._passes.launch, task)
        collected = self._collecting.submit(self._collect, launched)
        collected.add_done_callback(lambda _: self._count(-1))
        return collected

    def _collect(self, launched: Future[Pending]) -> list[Cast]:
        casts = launched.result().collect(since=self._collected)
        self._collected = time.perf_counter()
        return casts

    def _count(self, more: int) -> None:
        with self._lock:
            self.tasks += more


class _Devices:
    """All of them; a task goes to the one that has the fewest."""

    def __init__(self, devices: Sequence[_Device]) -> None:
        self._devices = devices
        self.count = len(devices)

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        return min(self._devices, key=lambda device: device.tasks).submit(task)


@contextmanager
def device_voters(passes: Passes, execution: Execution) -> Iterator[Voters]:
    """One worker a device. A replica that answers a fixed pass with one bit of difference is refused."""
    names = execution.devices()
    if execution.workers not in (None, len(names)):
        raise InvalidValueError(
            f"one worker serves each device, here {len(names)}, got workers={execution.workers}: leave --workers out"
        )
    fitting = passes.prepared.workers(len(names))  # one, where copies of the model would disturb one another
    with ExitStack() as stack:
        devices = []
        for own in _replicas(passes, names[:fitting]):
            collecting = stack.enter_context(worker_threads(1))
            launching = stack.enter_context(worker_threads(1))  # ends first: it hands on to the other
            devices.append(_Device(own, launching, collecting))
        yield _Devices(devices)


def _replicas(passes: Passes, names: Sequence[str]) -> list[DevicePasses]:
    if passes.on_device is None:
        raise InvalidValueError(
            f"several devices need noise that is drawn on them, got devices {', '.join(names)} and generator "
            f"{passes.prepared.numerics.generator}: name one device, or use --generator philox"
        )
    replicas = [passes.on_device]
    for name in names[1:]:
        own = WorkerSpec.of(passes, name).open().on_device
        assert own is not None  # the plan is the same
        replicas.append(own)
    return replicas
