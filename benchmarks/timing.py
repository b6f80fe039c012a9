"""Contenders that take turns, ratios within a round, and the tables that benchmarks print.

A machine that is busy or clocks down slows all contenders of a round alike, so only ratios within a round are used.
Times are never asserted: they depend on the machine.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from smoothcert.analysis.tables import markdown_table

ROOT = Path(__file__).parents[1]


def command_line(name: str, description: str | None) -> App:
    """The command line of one benchmark: lists are given as ``--network lenet resnet20``."""
    return App(
        f"python -m benchmarks.{name}",
        help=description,
        version_flags=[],
        default_parameter=Parameter(negative=(), consume_multiple=True),
    )


def narrow_table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: set[int]) -> str:
    """A Markdown table for a page, which is read rendered: not aligned, so half as long."""
    head, rule, *lines = markdown_table(header, rows, text_columns).splitlines()
    return (
        "\n".join(
            [
                re.sub(r" +", " ", head),
                re.sub(r"-+", "---", rule),
                *(re.sub(r" +", " ", line) for line in lines),
            ]
        )
        + "\n"
    )


@dataclass(frozen=True)
class Turn:
    """One run of one contender: work per second of the clock or of processors, and the cores whose time it used."""

    rate: float
    cores: float


@dataclass(frozen=True)
class Spread:
    """The median of a quantity over rounds, between two limits."""

    median: float
    low: float
    high: float

    @classmethod
    def range(cls, values: Sequence[float]) -> Spread:
        """From the smallest to the largest value."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def interval(cls, values: Sequence[float]) -> Spread:
        """The 95 % interval of the median by order statistics (sign test); the range below six values."""
        ordered = sorted(values)
        place = max(1, int(binom.ppf(0.025, len(ordered), 0.5)))
        return cls(statistics.median(ordered), ordered[place - 1], ordered[-place])

    def __str__(self) -> str:
        digits = 0 if abs(self.median) >= 20 else 3 if self.high - self.low < 0.1 else 2
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


Rounds = dict[str, list[Turn]]


def interleave(
    contenders: Mapping[str, Callable[[], int]],
    repeats: int,
    *,
    processor_time: bool = False,
) -> Rounds:
    """Rounds of all contenders, after one that warms up; each round starts with another contender.

    ``processor_time``: seconds are those of processors, which other processes on the machine do not take away.
    """
    names = list(contenders)
    rounds: Rounds = {name: [] for name in names}
    for number in range(-1, repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            began, used = time.perf_counter(), time.process_time()
            work = contenders[name]()
            seconds, used = time.perf_counter() - began, time.process_time() - used
            if number >= 0:
                rounds[name].append(Turn(work / (used if processor_time else seconds), used / seconds))
    return rounds


def speedup(rounds: Rounds, contender: str, reference: str) -> Spread:
    """How many times as much work a second the contender does."""
    return Spread.range([a.rate / b.rate for a, b in zip(rounds[contender], rounds[reference], strict=True)])


def cores_used(rounds: Rounds, contender: str) -> float:
    """The median number of cores whose time a contender used."""
    return statistics.median(turn.cores for turn in rounds[contender])


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def status_bytes(field: str) -> int:
    """A field of /proc/self/status: VmRSS (resident memory), VmHWM (its peak)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; memory is measured on Linux only")


def show(heads: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "") -> None:
    """Print a table, and below it what the machine did meanwhile."""
    table = Table(*heads)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console()
    console = Console(width=max(console.width, 140))
    console.print(table)
    load = os.getloadavg()[0]
    console.print(f"{note + '; ' if note else ''}{usable_cores()} cores, load {load:.1f}", highlight=False)
