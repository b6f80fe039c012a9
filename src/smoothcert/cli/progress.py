"""How far a command has come: counted once, told by a bar on a terminal and by lines anywhere else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 2.0
"""Seconds after which a bar appears where most work is over sooner."""
FIRST_LINE, BETWEEN_LINES = 5.0, 30.0
"""Seconds before the first line, and from each to the next: a log stays short, and silence never means a dead job."""


class Meter:
    """Items done and work done (votes, steps, …), by any thread; the time left goes by work where it is known.

    ``tell`` is called with the state after each change: begun, going, done.
    """

    def __init__(self, task: str, unit: str, tell: Callable[[Meter, str], None]) -> None:
        self.task, self.unit = task, unit
        self.loss: float | None = None
        self.items = self.all_items = self._before = 0
        self.work = 0
        self.all_work: int | None = None
        self._began = time.monotonic()
        self._tell, self._lock = tell, threading.RLock()

    def begin(self, work: int | None, items: int, done: int = 0) -> None:
        """``work`` units (None: unknown) remain, for ``items`` items; ``done`` of them were done before."""
        with self._lock:
            self.all_work, self.all_items = work, items
            self.items = self._before = done
            self.work, self._began = 0, time.monotonic()
            self._tell(self, "begun")

    def advance(self, work: int) -> None:
        """``work`` units were done."""
        with self._lock:
            self.work += work
            self._tell(self, "going")

    def item(self) -> None:
        """One more item is finished."""
        with self._lock:
            self.items += 1
            self._tell(self, "going")

    def one(self) -> None:
        """One more item is finished, which is the unit of work itself."""
        with self._lock:
            self.work += 1
            self.item()

    def step(self, epoch: int, epochs: int, batch: int, batches: int, loss: float) -> None:
        """One training step was done."""
        with self._lock:
            if self.all_work is None:  # the first of this process: epochs before it were done by another
                self.begin((epochs - epoch + 1) * batches, epochs, epoch - 1)
            self.items, self.work, self.loss = epoch, (epoch - 1 - self._before) * batches + batch, loss
            self._tell(self, "going")

    def end(self) -> None:
        """All was done."""
        with self._lock:
            self._tell(self, "done")

    @property
    def part(self) -> float:
        """The share done of what remained when this process began."""
        done, of = (
            (self.items - self._before, self.all_items - self._before)
            if self.all_work is None
            else (self.work, self.all_work)
        )
        return min(1.0, done / of) if of else 0.0

    @property
    def share(self) -> float:
        """The share done of the whole, what was done before included."""
        before = self._before / self.all_items if self.all_items else 0.0
        return before + (1 - before) * self.part

    @property
    def elapsed(self) -> float:
        """Seconds since work began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Seconds to go at the rate so far; None where nothing is done yet."""
        return self.elapsed * (1 - self.part) / self.part if self.part else None

    @property
    def rate(self) -> float | None:
        """Work per second; None where nothing is done yet."""
        return self.work / self.elapsed if self.work and self.elapsed else None

    def doing(self) -> str:
        """What is done, and how far it is: ``certifying 12/100``."""
        counted = f"{self.task} {self.items}/{self.all_items}" if self.all_items else self.task
        return counted if self.loss is None else f"{counted}, loss {self.loss:.3f}"

    def pace(self) -> str:
        """``88.1k votes/s, elapsed 0:09, left 0:41``."""
        if not self.all_items:
            return f"elapsed {clock(self.elapsed)}"
        rate = "–" if self.rate is None else _short(self.rate)
        done = self.items - self._before
        each = f", {_short(self.work / done)} each" if self.all_work is None and done else ""
        left = "–" if self.left is None else clock(self.left)
        return f"{rate} {self.unit}/s{each}, elapsed {clock(self.elapsed)}, left {left}"

    def in_words(self) -> str:
        """One line of a log."""
        return f"{self.doing()} ({100 * self.share:.0f} %), {self.pace()}"

    def as_json(self) -> dict[str, Any]:
        """One line of a log for machines (docs/scripts.md)."""
        told = {
            "task": self.task,
            "items_done": self.items,
            "items": self.all_items,
            "share": round(self.share, 4),
            "work_done": self.work,
            "unit": self.unit,
            "rate": _rounded(self.rate),
            "elapsed_seconds": _rounded(self.elapsed),
            "left_seconds": _rounded(self.left),
        }
        return told if self.loss is None else told | {"loss": self.loss}


class Paced:
    """Says which states deserve a line: the first after some seconds, others from time to time, and the last if there
    was one before. ``ends``: the beginning and the end in any case."""

    def __init__(self, *, ends: bool) -> None:
        self._ends, self._told = ends, False
        self._due = time.monotonic() + FIRST_LINE

    def due(self, state: str) -> bool:
        """Whether to tell this state now."""
        if state == "done":
            return self._told
        now = time.monotonic()
        if state == "begun":
            self._due, told = now + FIRST_LINE, self._ends
        elif told := now >= self._due:
            self._due = now + BETWEEN_LINES
        self._told |= told
        return told


def clock(seconds: float) -> str:
    """``0:09``, ``12:34``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _short(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.1f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
