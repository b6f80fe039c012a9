"""Threads, decided in one place: Python threads that evaluate a model, OpenMP threads by the size of the work.

Models that aren't pure functions have one caller at a time in the whole process, behind one lock: which of them share
something can't be known (two methods of an object, two functions around a third).
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

P = ParamSpec("P")
R = TypeVar("R")

_WORK_OF_A_THREAD = 1 << 28
"""Multiply-adds of a pass that pay for one more OpenMP thread.

Threads meet after every layer. With less to do between two meetings they gain little on an idle machine, and on a busy
one, where one of them waits for the processor, they are many times slower than one alone.
"""

_INTERRUPTS, _PATIENCE = 8, 0.25
"""How often a worker is interrupted, and seconds that it has to end the first time; twice as many each next time."""

LONG_WAIT = 60.0
"""Seconds for the lock after which a warning says what may be wrong: a pass seldom takes as long."""


class WaitingWarning(UserWarning):
    """A model has been waiting for the process-wide lock for longer than passes take."""


class _Here(threading.local):
    holding = False
    """Whether this thread, or the one that waits for it, has the lock."""


_LOCK, _HERE = threading.Lock(), _Here()


def holding_the_lock() -> bool:
    """Whether this thread is within :func:`one_caller`: work that needs the lock must then be done in this thread."""
    return _HERE.holding


@contextmanager
def one_caller() -> Iterator[None]:
    """The process-wide lock for evaluating models that aren't thread-safe; a thread that has it may enter again."""
    if _HERE.holding:
        yield
        return
    taken = False
    try:
        taken = _LOCK.acquire(timeout=LONG_WAIT)
        if not taken:
            warnings.warn(
                f"a model has been waiting for {LONG_WAIT:g} s for another one's pass to end: models that aren't "
                "thread-safe are called one at a time. If such a model calls another classifier in threads that it "
                "starts itself, both wait forever: pass thread_safe=True if it is thread-safe, or call the classifier "
                "in the model's own thread",
                WaitingWarning,
                stacklevel=3,
            )
            taken = _LOCK.acquire()
        _HERE.holding = True
        yield
    finally:
        _HERE.holding = False
        if taken:
            _LOCK.release()


def _new_lock() -> None:
    """In a forked process: the thread that had the lock isn't there to release it."""
    global _LOCK
    _LOCK, _HERE.holding = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


class _Pool(ThreadPoolExecutor):
    """Threads with nothing of the caller's context in them, also where Python would hand it on."""

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(lambda: Context().run(work, *args, **kwargs))


class _Inline(ThreadPoolExecutor):
    """Does everything in the calling thread, at once."""

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        done: Future[R] = Future()
        try:
            done.set_result(Context().run(work, *args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def worker_pool(count: int) -> ThreadPoolExecutor:
    """Threads that evaluate a model, with one OpenMP thread each; models are evaluated in such threads only.

    They end with ``shutdown``, or when nothing refers to the pool any more. A model that calls another classifier waits
    for it while it holds the lock: then the pool is the calling thread.
    """
    return _Inline(1) if holding_the_lock() else _Pool(count, "passes", _begin, (False,))


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for a while: on leaving, tasks not begun are dropped and every thread has ended."""
    with one_openmp_thread():
        pool = worker_pool(count)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(holding: bool) -> None:
    _HERE.holding = holding
    torch.set_num_threads(1)  # threads take over what was set last, which may have been by another caller


def in_a_worker(work: Callable[[], R]) -> R:
    """What ``work`` returns in a worker thread, without gradients: a model is the same function there as when it votes.

    Context variables, thread-local settings (scikit-learn's), torch's modes and autocast of the caller don't reach it.
    An interrupt of the caller also ends it. If the caller has the lock, so has the worker that it waits for.
    """
    promised: Future[R] = Future()

    def run(holding: bool) -> None:
        with suppress(KeyboardInterrupt):  # a further one, while the first is handed over
            try:
                _begin(holding)
                with torch.inference_mode():
                    promised.set_result(work())
            except BaseException as error:  # the caller's to handle
                promised.set_exception(error)

    with one_openmp_thread():
        # A daemon: no process waits at its end for a model that doesn't return.
        arguments = (run, holding_the_lock())
        worker = threading.Thread(target=Context().run, args=arguments, name="passes-alone", daemon=True)
        try:
            worker.start()  # where an interrupt may come already, with the worker at work
            # Again and again: a signal that comes just before a wait begins is handled only after it.
            while not promised.done():
                wait([promised], _PATIENCE)
            return promised.result()
        except BaseException:
            if not promised.done():
                _interrupt(worker)
            raise


def _interrupt(worker: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread as soon as it computes in Python, and wait a second for its end.

    More than once, and also after that second: Python drops an exception that it happens to raise in a finalizer, and
    on a busy machine a thread may not run for longer.
    """
    ident = ctypes.c_ulong(worker.ident or 0)

    def interrupt() -> None:
        for number in range(_INTERRUPTS):
            if worker.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))
                worker.join(_PATIENCE * 2**number)

    threading.Thread(target=interrupt, name="interrupts", daemon=True).start()
    worker.join(1.0)


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
    # glibc maps and faults large activations anew on every layer until one as large has been freed. Allocating is
    # enough: the pages are never touched, so this takes no memory.
    torch.empty(31 << 20, dtype=torch.uint8)
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

    leaves = [part for part in module.modules() if next(part.children(), None) is None]
    scripted = torch.jit.ScriptModule  # takes no hooks
    hooks = [leaf.register_forward_hook(count) for leaf in leaves if not isinstance(leaf, scripted)]
    try:
        answer = module(rows)
    finally:
        for hook in hooks:
            hook.remove()
    return answer, counted // len(rows)
