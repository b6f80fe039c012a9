"""Waits that end, and an address where nothing answers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIMIT = 60.0
"""Seconds after which a wait is a failure: many times what a slow machine needs."""


def until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    """Return as soon as the condition holds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"nothing happened in {limit} seconds"
        time.sleep(0.005)


def join(*threads: threading.Thread, limit: float = LIMIT) -> None:
    """Wait for the end of each thread."""
    for thread in threads:
        thread.join(limit)
        assert not thread.is_alive(), f"{thread.name} still runs after {limit} seconds"


@contextmanager
def unanswered() -> Iterator[str]:
    """The URL of a port that is taken, so that no other program can listen there, and where nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"
