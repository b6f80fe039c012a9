"""Turns: one caller at a time, in the whole process, for every model that wasn't declared to bear several."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


class Turns:
    """Where callers wait for one another. Those of an inner one are let in by whoever has a turn of ``outer``."""

    def __init__(self, outer: Turns | None = None) -> None:
        # A plain lock: one that is left by an interrupt can be released from whichever thread clears up.
        self.lock = threading.Lock()
        self.outer = outer
        self.over = False

    @contextmanager
    def taken(self) -> Iterator[Turns]:
        """A turn here; where the turn that these were made in is over, one of the outer ones."""
        with self.lock:
            if self.over and self.outer is not None:
                with self.outer.taken() as taken:
                    yield taken
            else:
                yield self


class _Here(threading.local):
    """This thread's: the turns it waits for, and those it lets others take while it has one."""

    waits_for: Turns | None = None
    lets_in: Turns | None = None


_PROCESS = Turns()
_HERE = _Here()


def turn(*, thread_safe: bool) -> AbstractContextManager[None]:
    """What a thread holds while it asks a model and takes the answers: nothing if that is ``thread_safe``.

    There is one such turn in a process, because nobody can tell which models meet: two methods of an object, two
    functions around a third, a module inside of another. The thread that has it may take it again. While a model asks
    another one, it waits for worker threads (:func:`turns_of_workers`): these take turns among themselves within its own.
    """
    return nullcontext() if thread_safe else _turn()


@contextmanager
def _turn() -> Iterator[None]:
    if _HERE.lets_in is not None:
        yield
        return
    with (_HERE.waits_for or _PROCESS).taken() as taken:
        _HERE.lets_in = inner = Turns(taken)
        try:
            yield
        finally:
            _HERE.lets_in = None
            with inner.lock:  # whoever was let in has left, and nobody comes after
                inner.over = True


def turns_of_workers() -> Turns | None:
    """The turns for threads that this one starts to ask models; None for those of the process."""
    return _HERE.lets_in or _HERE.waits_for


def wait_for(turns: Turns | None) -> None:
    """This thread, a worker, takes these turns."""
    _HERE.waits_for = turns


def _begin_anew() -> None:
    """In a forked process: threads that had the turn aren't there to give it back."""
    _PROCESS.lock = threading.Lock()
    _HERE.waits_for = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
