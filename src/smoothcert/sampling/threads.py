"""Threads, decided in one place: Python threads that evaluate a model, OpenMP threads by the size of the work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.sampling.turns import Turns, turns_of_workers, wait_for

_WORK_OF_A_THREAD = 1 << 28
"""Multiply-adds of a pass that pay for one more OpenMP thread.

Threads meet after every layer. With less to do between two meetings they gain little on an idle machine, and on a busy
one, where one of them waits for its turn, they are many times slower than one alone.
"""

_CASTING_DEVICES = ("cpu", "cuda", "mps")


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that evaluate a model, with one OpenMP thread each; models are evaluated in these only.

    On leaving, tasks not begun are dropped and every thread has ended.
    """
    with one_openmp_thread():
        pool = ThreadPoolExecutor(count, "passes", _begin, (turns_of_workers(),))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(turns: Turns | None) -> None:
    """What a worker thread does first."""
    wait_for(turns)
    torch.set_num_threads(1)  # threads take over what was set last, which may have been by another caller


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
def as_a_worker() -> Iterator[None]:
    """This thread evaluates a model as workers do: one OpenMP thread, no gradients, none of the caller's autocast."""
    with ExitStack() as stack:
        stack.enter_context(one_openmp_thread())
        stack.enter_context(torch.inference_mode())
        for kind in _CASTING_DEVICES:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


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
