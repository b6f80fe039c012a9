"""Turns: one caller at a time for what can't have more, however many classifiers were made of it."""

from __future__ import annotations

import threading
import types
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_LOCKS: dict[tuple[int, ...], Any] = {}
_REGISTERING = threading.Lock()


def turns_of(model: object, *, thread_safe: bool) -> AbstractContextManager[Any]:
    """What a thread holds while it calls ``model``: the same for every classifier of the same object.

    A lock of each classifier would not do: two of them, or one that two threads prepare at once, would call a function
    that keeps something between its lines at the same time, and count votes on one another's rows. The thread that has
    the turn may take it again.
    """
    if thread_safe:
        return nullcontext()
    # A bound method is another object whenever it is looked up; what it is bound to and what it calls stay.
    parts = (model.__self__, model.__func__) if isinstance(model, types.MethodType) else (model,)
    key = tuple(map(id, parts))
    with _REGISTERING:
        if key not in _LOCKS:
            _LOCKS[key] = threading.RLock()
            for part in parts:
                _forget_with(part, key)
        lock: AbstractContextManager[Any] = _LOCKS[key]
    return lock


def _forget_with(part: object, key: tuple[int, ...]) -> None:
    """Numbers of objects that are gone are given to others."""
    try:
        weakref.finalize(part, _LOCKS.pop, key, None)
    except TypeError:  # it can't be watched: kept, so that its number stays its own
        _LOCKS[(*key, -1)] = part
