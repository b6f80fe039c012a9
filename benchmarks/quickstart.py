"""How long `smoothcert quickstart` takes, alone and beside two busy processes, here and in another checkout.

    python -m benchmarks.quickstart --before CHECKOUT

The checkouts take turns. Processor time stands beside wall time: on a machine that others use as well, it is the one
to compare. Busy processes are started and ended here.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.interleave import wait_until_quiet

HERE = Path(__file__).parent.parent
TARGETS = {0: 30, 2: 90}
"""Seconds that it may take beside so many busy processes, on two cores."""


@dataclass(frozen=True)
class Taken:
    """Seconds of one run."""

    wall: float
    processor: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Time quickstart and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quickstart", description=main.__doc__)
    parser.add_argument(
        "--before", type=Path, help="root of another checkout, which takes turns with this one"
    )
    parser.add_argument("--n", type=int, help="votes per input in both (default: what each does by itself)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a run is given up")
    options = parser.parse_args(arguments)
    places = {"now": HERE} if options.before is None else {"before": options.before, "now": HERE}
    taken: dict[tuple[int, str], list[Taken]] = {}
    for busy in TARGETS:
        for _ in range(options.repeats):
            for name, place in places.items():
                wait_until_quiet(options.patience)
                with busy_processes(busy):
                    taken.setdefault((busy, name), []).append(run(place, options.n, options.limit))
    table = Table("beside", "version", "wall, s", "processor, s", "target, s")
    for (busy, name), runs in taken.items():
        figures = (_told([one.wall for one in runs]), _told([one.processor for one in runs]))
        table.add_row(f"{busy} busy processes", name, *figures, str(TARGETS[busy]))
    Console(width=100).print(table)


def run(place: Path, n: int | None, limit: float) -> Taken:
    """One quickstart of the checkout at ``place``, with the threads that it takes by itself."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
    environment["PYTHONPATH"] = str(place / "src")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "smoothcert", "quickstart", "--out", f"{folder}/out", "--json"]
        words += [] if n is None else ["--n", str(n)]
        subprocess.run(words, env=environment, check=True, capture_output=True, timeout=limit)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
        for one in started:  # after the run's own time was taken, which counts children that have ended
            one.wait()


def _told(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.0f} ({min(seconds):.0f}–{max(seconds):.0f})"


if __name__ == "__main__":
    main()
