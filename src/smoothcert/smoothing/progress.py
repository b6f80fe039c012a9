"""A progress bar for callers in Python, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def with_progress(answers: Iterator[T], total: int) -> Iterator[T]:
    """The same answers, counted by a bar as they pass."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Left

    columns = BarColumn(), MofNCompleteColumn(), TextColumn("elapsed"), Elapsed(), TextColumn("left"), Left()
    with Progress(TextColumn("certifying"), *columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        for answer in answers:
            progress.advance(task)
            yield answer
