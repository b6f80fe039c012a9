"""Terminal output: progress on standard error, results on standard output.

Names in runs, logs and directories are untrusted. All output passes through here: control characters are shown, not
sent to the terminal, and no text is taken for rich's markup.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from smoothcert.cli.progress import PATIENCE, Meter, Paced
from smoothcert.plain_text import shown

if TYPE_CHECKING:
    from smoothcert.cli.options import OutputOptions

_WIDEST = 1000  # columns that a table may take


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


class _HelpScreen(Console):
    """A console that leaves a closed pipe to ``main``, which ends quietly."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process as if something had failed."""
        raise BrokenPipeError


class _Screen(_HelpScreen):
    """Sends no control sequences but its own colours: text is escaped before layout."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, with control characters shown: before it is laid out, so that columns are as wide as they look."""
        return super().render_str(shown(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Whatever else is printed, text by text; what moves the cursor for a progress bar is rich's own."""
        for one in super().render(renderable, options):
            yield one if one.control else Segment(shown(one.text), one.style)


def _unguarded(stream: TextIO) -> TextIO:
    return stream.stream if isinstance(stream, _Guard) else stream


def _screen(stream: TextIO, width: int | None = None) -> Console:
    return _Screen(file=_unguarded(stream), width=width, highlight=False, markup=False, emoji=False)


def stdout() -> Console:
    """A console on standard output as it is now (tests replace it)."""
    return _screen(sys.stdout)


@dataclass(frozen=True)
class View:
    """A result: ``data`` for ``--json``, and lines and tables to read."""

    data: Any
    parts: Iterable[str | Text | Table] = ()


def emit(view: View, output: OutputOptions) -> None:
    """Print a result: one JSON object with ``--json``, nothing with ``--quiet``."""
    if output.json:
        print(json.dumps(view.data))
    elif not output.quiet:
        show_parts(view.parts)


def show_parts(parts: Iterable[str | Text | Table]) -> None:
    """Print lines as they are, and tables of figures as wide as they are: half a figure is another."""
    for part in parts:
        console = stdout()
        if isinstance(part, Table) and all(column.no_wrap for column in part.columns):
            needed = console.measure(part, options=console.options.update(width=_WIDEST)).maximum
            console = _screen(sys.stdout, max(needed, console.width))
        console.print(part, soft_wrap=not isinstance(part, Table))


def figure_table(*headings: str, title: str | None = None) -> Table:
    """A table of figures, which are set to the right below their headings."""
    columns = (Column(name, justify="right", no_wrap=True) for name in headings)
    return Table(*columns, title=title, title_justify="left")


def listed_below(title: str, sentences: Sequence[str]) -> list[str | Text]:
    """A title and a line for each sentence; nothing where there are none."""
    return [Text(title, "bold"), *(f"  - {sentence}" for sentence in sentences)] if sentences else []


def stderr() -> Console:
    """A console on standard error as it is now."""
    return _screen(sys.stderr)


def help_console() -> Console:
    """For the command line's own help, which has markup and holds no text but ours."""
    return _HelpScreen(file=_unguarded(sys.stdout))


@dataclass
class _Log:
    """How standard error is written: for people, or a JSON object a line (docs/scripts.md), and how much of it."""

    json: bool = False
    quiet: bool = False
    """No warnings; no notes and no progress either."""
    silent: bool = False
    """No notes and no progress."""


_log = _Log()


@contextmanager
def log_format(words: Sequence[str]) -> Iterator[bool]:
    """Whether ``--log-format json`` was given, and inside, standard error is written as the words of a command ask.

    Looked for before they are parsed: a mistake in them is told in the same format. With ``--json`` there are notes and
    progress only where a log was asked for as well.
    """
    parts = [part for word in words for part in word.split("=", 1)]
    before = vars(_log).copy()
    _log.json = ("--log-format", "json") in pairwise(parts)
    _log.quiet = "--quiet" in parts
    _log.silent = _log.quiet or ("--json" in parts and "--log-format" not in parts)
    try:
        yield _log.json
    finally:
        vars(_log).update(before)


def silence() -> None:
    """From now on errors only: of several processes that do one thing, one tells about it."""
    _log.quiet = _log.silent = True


def end_event(exit_code: int) -> None:
    """The last line of a JSON log, if it is still read."""
    with contextlib.suppress(OSError, ValueError):
        _write_event("end", exit_code=exit_code)


def _write_event(event: str, **fields: Any) -> None:
    """One line; JSON escapes control characters itself."""
    when = datetime.now(UTC).isoformat(timespec="milliseconds")
    stream = _unguarded(sys.stderr)
    stream.write(json.dumps({"event": event, "time": when, **fields}) + "\n")
    stream.flush()


def _tell(text: Text, event: str, message: str, **fields: Any) -> None:
    if _log.json:
        _write_event(event, message=message, **fields)
    else:
        stderr().print(text, soft_wrap=True)


def report_mistake(message: str, **fields: Any) -> None:
    """One clear message, no traceback; ``fields`` are for machines."""
    _tell(Text.assemble(("smoothcert:", "bold red"), " ", shown(message)), "error", message, **fields)


def note(message: str) -> None:
    """Information that isn't a result."""
    if not _log.silent:
        _tell(Text(shown(message), style="dim"), "note", message.strip())


def warn(message: str, *, always: bool = False, **fields: str) -> None:
    """Something that the reader may not have meant, and that goes on all the same."""
    if always or not _log.quiet:
        _tell(Text.assemble(("warning:", "yellow"), " ", shown(message)), "warning", message, **fields)


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
        if category.__module__.startswith("smoothcert") or _log.json:
            warn(str(message), always=True, category=category.__name__)
        else:
            sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    warnings.showwarning = show
    warnings.filterwarnings(
        "ignore", message="Image size"
    )  # by Pillow, about images that datasets refuse anyway


class _Words(ProgressColumn):
    """A sentence about the meter, made anew each time the bar is drawn."""

    def __init__(self, words: Callable[[], str]) -> None:
        super().__init__(table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._words = words

    def render(self, task: Task) -> Text:  # noqa: ARG002  (the bar asks every column about its task)
        return Text(self._words())


@contextmanager
def progress_bar(task: str, unit: str, items: int | None = None, *, patient: bool = False) -> Iterator[Meter]:
    """A meter to be advanced: a bar shows it on a terminal; elsewhere, and in a JSON log, lines from time to time.

    ``items``: that many remain, each a unit of work; else begin it. ``patient``: the bar appears only if the work takes
    long. One that is never advanced shows the time alone.
    """
    console = stderr()
    if _log.silent:
        meter = Meter(task, unit, lambda *_: None)
        meter.begin(items, items or 0)
        yield meter
        return
    if _log.json or not console.is_terminal:
        pace = Paced(ends=_log.json)

        def line(meter: Meter, state: str) -> None:
            if pace.due(state):
                if _log.json:
                    _write_event("progress", state=state, **meter.as_json())
                else:
                    note(meter.in_words())

        meter = Meter(task, unit, line)
        if items is not None:
            meter.begin(items, items)
        yield meter
        meter.end()
        return

    def draw(meter: Meter, _state: str) -> None:
        progress.update(shown_task, completed=meter.share, total=1.0 if meter.all_items else None)

    meter = Meter(task, unit, draw)
    columns = (_Words(meter.doing), BarColumn(20), _Words(meter.pace))
    progress = Progress(*columns, console=console)
    shown_task = progress.add_task("", total=None)
    if items is not None:
        meter.begin(items, items)
    starter = threading.Timer(PATIENCE if patient else 0.0, progress.start)
    starter.daemon = True
    starter.start() if patient else progress.start()
    try:
        yield meter
    finally:
        starter.cancel()
        if patient:
            starter.join()
        if progress.live.is_started:
            progress.update(shown_task, visible=meter.all_items > 0)  # nothing stays of work that never began
            progress.stop()
