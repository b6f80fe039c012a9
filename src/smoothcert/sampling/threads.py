"""Worker threads, and the settings under which a model is evaluated in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """Threads that evaluate a model, with one OpenMP thread each; no others ever do."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[ThreadPoolExecutor]:
        """Keep the threads; on leaving, tasks not begun are dropped and every thread has ended.

        Inside another ``running`` of the same workers it is the same threads.
        """
        if self._pool is not None:
            yield self._pool
            return
        with one_openmp_thread():
            self._pool = ThreadPoolExecutor(self.count, "passes")
            try:
                yield self._pool
            finally:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None

    def map(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        on_result: Callable[[R], None] | None = None,
    ) -> list[R]:
        """The function's values in the order of the tasks; ``on_result`` hears them in that order."""
        results = []
        with self.running() as pool:
            for result in pool.map(function, tasks):
                results.append(result)
                if on_result is not None:
                    on_result(result)
        return results


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
