"""Turns: one caller at a time, in the whole process, for every model that wasn't declared to bear several."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


class WaitingWarning(UserWarning):
    """A model waits for its turn longer than passes take."""


class Turns:
    """Where callers wait for one another; inner ones are for those that a holder of an ``outer`` turn waits for."""

    def __init__(self, outer: Turns | None = None) -> None:
        # A plain lock: one that is left by an interrupt can be released from whichever thread clears up.
        self.lock = threading.Lock()
        self.outer = outer
        self.over = False
        """Whether the outer turn that these were made in has ended; never true of the outermost."""

    def current(self) -> Turns:
        """These, or the next outer ones that are still made use of."""
        return self.outer.current() if self.over and self.outer is not None else self


class _Here(threading.local):
    """This thread's: the turns it waits for, those it has one of, and those that it lets its workers take meanwhile."""

    waits_for: Turns | None = None
    has: Turns | None = None
    lets_in: Turns | None = None


PATIENCE = 60.0
"""Seconds after which somebody who still waits is told why: a pass seldom takes as long."""

_PROCESS = Turns()
_HERE = _Here()


def turn(*, thread_safe: bool) -> AbstractContextManager[None]:
    """What a thread holds while it asks a model and takes the answers: nothing if that is ``thread_safe``.

    There is one such turn in a process, because nobody can tell which models meet: two methods of an object, two
    functions around a third, a module inside of another. The thread that has it may take it again. A model that asks
    another one waits for worker threads (:func:`turns_of_workers`): these take turns among themselves, within its own.
    """
    return nullcontext() if thread_safe else _turn()


@contextmanager
def _turn() -> Iterator[None]:
    if _HERE.has is not None:
        yield
        return
    while True:
        turns = (_HERE.waits_for or _PROCESS).current()
        with _taken(turns.lock):
            if turns.over:  # while it was waited for
                continue
            _HERE.has = turns
            try:
                yield
                return
            finally:
                inner, _HERE.has, _HERE.lets_in = _HERE.lets_in, None, None
                if inner is not None:
                    with inner.lock:  # whoever was let in has left, and nobody comes after
                        inner.over = True


@contextmanager
def _taken(lock: threading.Lock) -> Iterator[None]:
    taken = False
    try:
        taken = lock.acquire(timeout=PATIENCE)
        if not taken:
            _tell()
            taken = lock.acquire()
        yield
    finally:
        if taken:
            lock.release()


def _tell() -> None:
    warnings.warn(
        f"a model has been waiting for {PATIENCE:g} s for another one's pass to end. A function or module that isn't "
        "declared thread-safe has the process to itself while it is asked. If it asks another classifier from threads "
        "that it starts itself, both wait for ever: declare it with thread_safe=True if it is, or let it ask in its "
        "own thread",
        WaitingWarning,
        stacklevel=2,
    )


def turns_of_workers() -> Turns | None:
    """The turns for threads that this one starts to ask models; None for those of the process."""
    if _HERE.has is None:
        return _HERE.waits_for
    if _HERE.lets_in is None:
        _HERE.lets_in = Turns(_HERE.has)
    return _HERE.lets_in


def wait_for(turns: Turns | None) -> None:
    """This thread, a worker, takes these turns."""
    _HERE.waits_for = turns


def _begin_anew() -> None:
    """In a forked process: threads that had the turn aren't there to give it back."""
    _PROCESS.lock = threading.Lock()
    _HERE.waits_for = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
