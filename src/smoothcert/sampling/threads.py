"""Worker threads, and the settings under which a model is evaluated in them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that evaluate a model, with one OpenMP thread each; models are evaluated in these only.

    On leaving, tasks not begun are dropped and every thread has ended.
    """
    with one_openmp_thread():
        pool = ThreadPoolExecutor(count, "passes")
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def one_openmp_thread() -> Iterator[None]:
    """Workers are the parallelism: one OpenMP thread each is faster, and results don't depend on a split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    _raise_allocator_threshold()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _raise_allocator_threshold() -> None:
    """glibc maps and faults large activations anew on every layer until one as large has been freed.

    Allocating is enough: the pages are never touched, so this takes no memory.
    """
    torch.empty(31 << 20, dtype=torch.uint8)
