"""Directories and files as somebody might make them who wants something from whoever opens them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from smoothcert.commands import main
from smoothcert.runs import Manifest, create_run
from tests.report.made_reports import statement, toy_records
from tests.runs.sealing import without_checksums

ESCAPE = "\x1b]0;owned\x07"
"""Sets the title of a terminal."""

LIMIT = 120.0
"""Seconds that opening a file may take before it counts as waiting for ever."""

# Of the program itself: what the operating system says of a child may be what its parent had when it was made.
_TELL_MEMORY = """
import re, resource
from pathlib import Path
status = Path("/proc/self/status")
found = re.search(r"VmHWM:\\s+([0-9]+) kB", status.read_text()) if status.exists() else None
print(found[1] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


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


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The message of a command that refuses; one message, no traceback."""
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    shown = capsys.readouterr().err
    assert caught.value.code == 2, shown
    assert "Traceback" not in shown
    return " ".join(shown.split())


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


@contextmanager
def process_within(megabytes: int) -> Iterator[None]:
    """What the whole process takes at most grows by less than this, whoever allocates it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
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


def alone(program: str, cwd: Path, *arguments: str | Path, **environment: str) -> tuple[str, int]:
    """Output of a Python program in a process of its own, and the megabytes it took at most."""
    words = [sys.executable, "-P", "-c", program + _TELL_MEMORY, *(str(one) for one in arguments)]
    given = {**os.environ, **environment}
    done = subprocess.run(
        words, cwd=cwd, env=given, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said, _, kilobytes = done.stdout.rstrip().rpartition("\n")
    return said, int(kilobytes) // 1024


def manifest_of(run: Path) -> Manifest:
    return Manifest.load(run)
