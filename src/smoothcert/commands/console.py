"""Terminal output: progress on standard error, results on standard output.

Names in runs, logs and directories are untrusted. All output passes through here: control characters are shown, not
sent to the terminal, and no text is taken for rich's markup.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from smoothcert.plain_text import shown


class _Guard:
    """A stream that lets no control character through; it claims not to be a terminal, so that libraries send none."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(shown(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded_output() -> Iterator[None]:
    """While a command runs, plain printing goes through a guard; :func:`stdout` and :func:`stderr` bypass it.

    Characters that the stream's encoding lacks are escaped. Output is flushed at the end, so that a closed pipe or a
    full disk is reported here and not by the interpreter as it exits.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    before = sys.stdout, sys.stderr
    guards = [one if isinstance(one, _Guard) else cast(TextIO, _Guard(one)) for one in before]
    sys.stdout, sys.stderr = guards
    try:
        yield
        before[0].flush()
    finally:
        # Only what is still ours: a test may have put its own in place meanwhile.
        if sys.stdout is guards[0]:
            sys.stdout = before[0]
        if sys.stderr is guards[1]:
            sys.stderr = before[1]


def give_up_output() -> None:
    """Discard output that can't be written: the interpreter would try again as it exits, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


@contextmanager
def interruptible() -> Iterator[None]:
    """The first Ctrl-C interrupts the command; another ends the process at once, which loses nothing that was kept.

    So does the first one during an import: an exception raised there may be swallowed, or come out as another.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed = 0

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1 or _importing(frame):
            # A progress bar hides the cursor.
            os.write(2, b"\x1b[?25h\n" if os.isatty(2) else b"")
            if pressed == 1:
                os.write(2, b"smoothcert: interrupted\n")
            os._exit(130)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise  # the process is about to end; further presses still end it at once
    except BaseException:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib."):
        frame = frame.f_back
    return frame is not None


class _Screen(Console):
    """Sends no control sequences but its own colours: text is escaped before layout."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, with control characters shown: before it is laid out, so that columns are as wide as they look."""
        return super().render_str(shown(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Whatever else is printed, text by text; what moves the cursor for a progress bar is rich's own."""
        for one in super().render(renderable, options):
            yield one if one.control else Segment(shown(one.text), one.style)

    def on_broken_pipe(self) -> None:
        """Leave it to ``main``, which ends quietly on a closed pipe."""
        raise BrokenPipeError


def _screen(stream: TextIO) -> Console:
    stream = stream.stream if isinstance(stream, _Guard) else stream
    return _Screen(file=stream, highlight=False, markup=False, emoji=False)


def stdout() -> Console:
    """A console on standard output as it is now (tests replace it)."""
    return _screen(sys.stdout)


def stderr() -> Console:
    """A console on standard error as it is now."""
    return _screen(sys.stderr)


def help_console() -> Console:
    """For the command line's own help, which has markup and holds no text but ours."""
    return Console(file=sys.stdout.stream if isinstance(sys.stdout, _Guard) else sys.stdout)


def report_mistake(message: str) -> None:
    """One clear message, no traceback."""
    stderr().print(Text.assemble(("smoothcert:", "bold red"), " ", shown(message)), soft_wrap=True)


def note(message: str, quiet: bool = False) -> None:
    """Information that isn't a result."""
    if not quiet:
        stderr().print(Text(shown(message), style="dim"), soft_wrap=True)


def warn(message: str, quiet: bool = False) -> None:
    """Something that the reader may not have meant, and that goes on all the same."""
    if not quiet:
        stderr().print(Text.assemble(("warning:", "yellow"), " ", shown(message)), soft_wrap=True)


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
            warn(str(message))
        else:
            sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    warnings.showwarning = show
    warnings.filterwarnings(
        "ignore", message="Image size"
    )  # by Pillow, about images that datasets refuse anyway


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
    """A progress bar over inputs with a rate in votes; silent when quiet or not on a terminal.

    Where the amount of work isn't known beforehand, the bar and the time left go by items.
    """

    def __init__(self, progress: Progress, items: str) -> None:
        self._progress = progress
        self._task = progress.add_task(items, total=None, items=0, all_items=0)

    def begin(self, work: int | None, items: int, done: int = 0) -> None:
        """``work`` units (None: unknown) remain, for ``items`` items; ``done`` of them were done before."""
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
