"""Threads, decided in one place: Python threads that evaluate a model, OpenMP threads by the size of the work."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from smoothcert.sampling.turns import Turns, turns_of_workers, wait_for

P = ParamSpec("P")
R = TypeVar("R")

_WORK_OF_A_THREAD = 1 << 28
"""Multiply-adds of a pass that pay for one more OpenMP thread.

Threads meet after every layer. With less to do between two meetings they gain little on an idle machine, and on a busy
one, where one of them waits for its turn, they are many times slower than one alone.
"""

_PATIENCE = 1.0  # seconds that an interrupted worker has to end


class _Pool(ThreadPoolExecutor):
    """Threads with nothing of the caller's context in them, also where Python would hand it on."""

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(lambda: Context().run(work, *args, **kwargs))


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that evaluate a model, with one OpenMP thread each; models are evaluated in these only.

    On leaving, tasks not begun are dropped and every thread has ended.
    """
    with one_openmp_thread():
        pool = _Pool(count, "passes", _begin, (turns_of_workers(),))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(turns: Turns | None) -> None:
    """What a worker thread does first."""
    wait_for(turns)
    torch.set_num_threads(1)  # threads take over what was set last, which may have been by another caller


def in_a_worker(work: Callable[[], R]) -> R:
    """What ``work`` returns in a worker thread, without gradients: a model is the same function there as when it votes.

    Context variables, thread-local settings (scikit-learn's), torch's modes and autocast of the caller don't reach it.
    An interrupt of the caller ends it, too.
    """
    promised: Future[R] = Future()

    def run(turns: Turns | None) -> None:
        try:
            _begin(turns)
            with torch.inference_mode():
                promised.set_result(work())
        except BaseException as error:  # the caller's to handle
            promised.set_exception(error)

    with one_openmp_thread():
        # A daemon: no process waits at its end for a model that doesn't return.
        arguments = (run, turns_of_workers())
        worker = threading.Thread(target=Context().run, args=arguments, name="passes-alone", daemon=True)
        try:
            worker.start()  # where an interrupt may come already, with the worker at work
            return promised.result()
        except BaseException:
            if not promised.done():
                _interrupt(worker)
            raise


def _interrupt(worker: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread as soon as it computes in Python, and wait a little for its end."""
    ident = ctypes.c_ulong(worker.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))
    worker.join(_PATIENCE)


class Workers:
    """What worker threads evaluate."""

    workers: int

    def threads(self) -> AbstractContextManager[ThreadPoolExecutor]:
        """As many as it has workers."""
        return worker_threads(self.workers)


def one_openmp_thread() -> AbstractContextManager[None]:
    """Workers are the parallelism: one OpenMP thread each is faster, and results don't depend on a split."""
    return openmp_threads(1)


@contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """So many OpenMP threads for every operation of this thread; as before on leaving."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    _raise_allocator_threshold()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(work: int) -> int:
    """OpenMP threads for passes of ``work`` multiply-adds: one for small ones whatever the machine, else at most those
    that torch may use here (OMP_NUM_THREADS, or one per core)."""
    return max(1, min(work // _WORK_OF_A_THREAD, torch.get_num_threads()))


@torch.no_grad()
def counted_pass(module: nn.Module, rows: Tensor) -> tuple[Any, int]:
    """What a module answers, and about how many multiply-adds a row of it took.

    Those of layers with weights, and one for each number that other layers make. Counted, not timed, so that it is the
    same on every machine.
    """
    counted = 0

    def count(layer: nn.Module, _inputs: object, output: object) -> None:
        nonlocal counted
        if isinstance(output, Tensor):
            weight = getattr(layer, "weight", None)
            sums = weight[0].numel() if isinstance(weight, Tensor) and weight.ndim > 1 else 1
            counted += output.numel() * sums

    # Modules that TorchScript made take no hooks.
    leaves = [
        part
        for part in module.modules()
        if next(part.children(), None) is None and not isinstance(part, torch.jit.ScriptModule)
    ]
    hooks = [leaf.register_forward_hook(count) for leaf in leaves]
    try:
        answer = module(rows)
    finally:
        for hook in hooks:
            hook.remove()
    return answer, counted // len(rows)


def _raise_allocator_threshold() -> None:
    """glibc maps and faults large activations anew on every layer until one as large has been freed.

    Allocating is enough: the pages are never touched, so this takes no memory.
    """
    torch.empty(31 << 20, dtype=torch.uint8)
