"""Reading ahead: threads read what is slow to read before it is asked for, in order and within bounds."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")

# Decoding is bound by processors, not by waiting; more threads than this only add memory.
MOST_THREADS = 8


def decoding_threads() -> int:
    """Threads that decode images: one a core, within reason."""
    return min(os.cpu_count() or 1, MOST_THREADS)


def read_ahead(
    keys: Iterable[K], read: Callable[[K], T], *, ahead: int, threads: int
) -> Generator[tuple[K, T]]:
    """Each key with what ``read`` makes of it, in the order of the keys.

    While one is handed out, at most ``ahead`` others are read or being read. What goes wrong with a key is raised when
    its turn comes, after all that came before it. When the consumer leaves, or an error does, nothing more is begun and
    every thread has ended.
    """
    waiting = iter(keys)
    pool = ThreadPoolExecutor(threads, "reading")
    pending: deque[tuple[K, Future[T]]] = deque()
    try:
        while True:
            while len(pending) <= ahead and (key := next(waiting, _END)) is not _END:
                pending.append((key, pool.submit(read, key)))  # type: ignore[arg-type]
            if not pending:
                return
            first, reading = pending.popleft()
            yield first, reading.result()
    finally:
        pool.shutdown(cancel_futures=True)


_END = object()
