"""Directories and files as somebody might make them who wants something from whoever opens them."""

import json
import re
import resource
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smoothcert.cli import main
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import create_run
from tests.analysis.report.made_reports import statement, toy_records
from tests.runs.sealing import without_checksums

ESCAPE = "\x1b]0;owned\x07"
"""Sets the title of a terminal."""

LIMIT = 120.0
"""Seconds that opening a file may take before it counts as waiting for ever."""


def toy_run(path: Path, count: int = 12, origin: dict[str, Any] | None = None, **plan: Any) -> Path:
    manifest = statement(**plan).stating(origin=origin or {})
    create_run(path, manifest, toy_records(count))
    return path


def edited(run: Path, **parts: Any) -> Path:
    """The run with other fields in its statement; parts that are dicts are merged."""
    stated = json.loads((without_checksums(run) / "run.json").read_text())
    for name, value in parts.items():
        stated[name] = {**stated.get(name, {}), **value} if isinstance(value, dict) else value
    (run / "run.json").write_text(json.dumps(stated))
    return run


def exit_code(*words: str | Path) -> int:
    """How the command ends; a bug would end in another exception."""
    try:
        main([str(word) for word in words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextmanager
def memory_below(megabytes: int) -> Iterator[None]:
    """What Python and NumPy take inside the block stays below this."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 2**20, f"{peak / 2**20:.0f} MB"


def _peak() -> int:
    """Megabytes that this process took at most."""
    status = Path("/proc/self/status")
    told = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return (int(told[1]) if told else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) // 1024


@contextmanager
def process_within(megabytes: int) -> Iterator[None]:
    """What the whole process takes at most grows by less than this, whoever allocates it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = _peak()
    yield
    grown = _peak() - before
    assert grown < megabytes, f"{grown} MB"


@contextmanager
def in_time() -> Iterator[None]:
    """What waits for ever, as for a pipe that nobody writes to, is a TimeoutError after ``LIMIT`` seconds."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def manifest_of(run: Path) -> Manifest:
    return Manifest.load(run)
