"""Processes of this machine, for models that hold threads up: Python functions, scikit-learn, the compiled route.

Each has the model to itself; weights of torch models lie in memory that all of them share.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import ClassVar

from smoothcert.engine.backends.workers import BACKENDS, Cast, RemoteWorker, WorkerSpec, arriving
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.schedule import Task
from smoothcert.errors import InvalidValueError, ModelError

_MOST_LOSSES = 3  # of workers one after another with nothing done between them


@BACKENDS.register("processes")
class ProcessVoters:
    """Worker processes, each with one thread.

    Their pool is made anew when one of them dies, since the others can't be trusted with its queue; the tasks that it
    had are sent again.
    """

    far: ClassVar[bool] = False

    def __init__(self, passes: Passes, execution: Execution) -> None:
        if "," in execution.device:
            raise InvalidValueError(
                f"processes share one device, got {execution.device!r}: leave --backend out, threads use them all"
            )
        self.count, self._name = execution.worker_count(), passes.prepared.name
        self._prepared, self._stated = passes.prepared, WorkerSpec.of(passes, execution.main_device)
        self._spec = arriving(self._stated, self._name)
        self._lock = threading.RLock()
        self._losses = 0
        self._closed = False
        self._pool = self._start()

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks; it is sent again when the worker that has it is lost."""
        promised: Future[list[Cast]] = Future()
        promised.set_running_or_notify_cancel()  # what was sent can't be called back
        self._send(task, promised)
        return promised

    def current(self) -> bool:
        """Whether the function here is the one that was sent."""
        return self._stated.current(self._prepared)

    def close(self) -> None:
        """Drop what isn't begun and end the processes."""
        with self._lock:
            self._closed = True
            pool = self._pool
        pool.shutdown(cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.count, context, _begin, (self._spec,))

    def _send(self, task: Task, promised: Future[list[Cast]]) -> None:
        with self._lock:
            if self._closed:
                promised.set_exception(CancelledError())
                return
            while True:
                pool = self._pool
                try:
                    with without_main():
                        sent = pool.submit(_cast, task)
                    break
                except BrokenProcessPool:
                    self._replace(pool)
        sent.add_done_callback(lambda done: self._receive(pool, task, promised, done))

    def _receive(
        self, pool: ProcessPoolExecutor, task: Task, promised: Future[list[Cast]], done: Future[list[Cast]]
    ) -> None:
        try:
            if done.cancelled():
                promised.set_exception(CancelledError())
            elif isinstance(done.exception(), BrokenProcessPool):
                self._replace(pool)
                self._send(task, promised)
            elif (error := done.exception()) is not None:
                promised.set_exception(error)
            else:
                self._losses = 0
                promised.set_result(done.result())
        except Exception as error:
            promised.set_exception(error)

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """Another pool, unless another thread has made one; gives up where processes die as they come."""
        with self._lock:
            if self._closed or self._pool is not broken:
                return
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                raise ModelError(
                    f"worker processes for {self._name} died {self._losses} times in a row. Is there enough memory? "
                    "Use fewer of them (--workers 1), or threads (--backend threads)"
                )
            broken.shutdown(wait=False, cancel_futures=True)
            self._pool = self._start()


_worker: RemoteWorker | None = None


def _begin(spec: WorkerSpec | ModelError) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns the run
    threading.Thread(target=end_with_parent, daemon=True).start()
    _worker = RemoteWorker(spec)


def end_with_parent() -> None:
    """A process that waits for work doesn't notice that its parent is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _cast(task: Task) -> list[Cast]:
    assert _worker is not None  # the pool runs _begin before anything else
    found = _worker.cast(task)
    if isinstance(found, ModelError):
        raise found
    return found


@contextmanager
def without_main() -> Iterator[None]:
    """New processes don't run the user's script again: what it defines is sent by value.

    multiprocessing would import it, for the sake of names in it, and a script without the customary guard would
    certify in every process.
    """
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in kept:
        with suppress(AttributeError):
            delattr(main, name)
    main.__spec__ = None
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)
