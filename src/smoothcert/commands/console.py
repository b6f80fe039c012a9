"""What people see: progress on standard error, results on standard output."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


def stderr() -> Console:
    """A console on standard error as it is now (tests replace it)."""
    return Console(stderr=True, highlight=False)


def report_mistake(message: str) -> None:
    """One clear message, no traceback."""
    stderr().print(f"[bold red]smoothcert:[/] {escape(message)}", soft_wrap=True)


def note(message: str, quiet: bool = False) -> None:
    """Something worth knowing that is no result."""
    if not quiet:
        stderr().print(f"[dim]{escape(message)}[/]", soft_wrap=True)


def show_warnings() -> None:
    """Print the library's warnings as sentences instead of source lines."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,  # noqa: ARG001  (the name is part of the hook)
        line: str | None = None,
    ) -> None:
        if category.__module__.startswith("smoothcert"):
            stderr().print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True)
        else:
            sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    warnings.showwarning = show


class _Rate(ProgressColumn):
    """Work done per second, in thousands where that reads better."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """The rate as text."""
        if (work := task.fields.get("work")) is not None:
            each = _short(work / task.completed) if task.completed else "–"
            speed = work / task.elapsed if task.elapsed else None
            more = f", {each} each"
        else:
            speed, more = task.finished_speed or task.speed, ""
        shown = "–" if speed is None else _short(speed)
        return Text(f"{shown} {self._unit}/s{more}", style="progress.data.speed")


def _short(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.1f}"


class Bar:
    """A progress bar over inputs with a rate in votes; says nothing when quiet or not on a terminal.

    Where the amount of work isn't known beforehand, the bar and the time left go by items.
    """

    def __init__(self, progress: Progress, items: str) -> None:
        self._progress = progress
        self._task = progress.add_task(items, total=None, items=0, all_items=0)

    def begin(self, work: int | None, items: int, done: int = 0) -> None:
        """``work`` units (None: nobody knows) are to do, for ``items`` items of which ``done`` were done before."""
        self._progress.update(
            self._task,
            total=items - done if work is None else work,
            items=done,
            all_items=items,
            work=0 if work is None else None,
        )

    def advance(self, work: int) -> None:
        """``work`` units were done."""
        before = self._fields().get("work")
        if before is None:
            self._progress.advance(self._task, work)
        else:
            self._progress.update(self._task, work=before + work)

    def step(self, epoch: int, epochs: int, batch: int, batches: int, loss: float) -> None:
        """One training step was done."""
        done = (epoch - 1) * batches + batch
        self._progress.update(
            self._task,
            total=epochs * batches,
            completed=done,
            items=epoch,
            all_items=epochs,
            description=f"training, loss {loss:.3f}, epoch",
        )

    def item(self) -> None:
        """One more item is finished."""
        fields = self._fields()
        self._progress.update(
            self._task, items=fields["items"] + 1, advance=0 if fields.get("work") is None else 1
        )

    def _fields(self) -> dict[str, Any]:
        return self._progress.tasks[self._task].fields


@contextmanager
def progress_bar(items: str, unit: str, quiet: bool) -> Iterator[Bar]:
    """A bar with items done, rate, time taken and time left."""
    console = stderr()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[items]}/{task.fields[all_items]}"),
        _Rate(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        yield Bar(progress, items)
