"""Turn by turn: contenders run one after another in every round, and only ratios within a round are used.

A machine that is busy or clocks down then slows all of them, and the ratio stands.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_QUIET = 0.1  # share of all cores that others may use


@dataclass(frozen=True)
class Turn:
    """One run of one contender: votes per second of a clock, or of processors, and how many cores' time it got and made
    use of."""

    rate: float
    cores: float


@dataclass(frozen=True)
class Ratio:
    """Median and range of a quantity over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Ratio:
        """Of one value a round."""
        return cls(statistics.median(values), min(values), max(values))


Rounds = dict[str, list[Turn]]


def interleave(
    contenders: Mapping[str, Callable[[], int]],
    repeats: int,
    patience: float = 0.0,
    *,
    processor_time: bool = False,
) -> Rounds:
    """Rounds of all contenders, after one that warms up; each round starts with another contender.

    ``patience``: seconds to wait, at most, before each turn until the machine is quiet. ``processor_time``: seconds are
    those of processors, which others on the machine don't take away.
    """
    names = list(contenders)
    rounds: Rounds = {name: [] for name in names}
    for number in range(-1, repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            wait_until_quiet(patience)
            turn = _take(contenders[name], processor_time)
            if number >= 0:
                rounds[name].append(turn)
    return rounds


def speedup(rounds: Rounds, contender: str, reference: str) -> Ratio:
    """How many times as many votes a second the contender casts."""
    return Ratio.of([ours.rate / theirs.rate for ours, theirs in zip(rounds[contender], rounds[reference])])


def cores_used(rounds: Rounds, contender: str) -> float:
    """The median number of cores whose time a contender got."""
    return statistics.median(turn.cores for turn in rounds[contender])


def wait_until_quiet(patience: float) -> None:
    """Return once other processes leave the cores alone for a quarter of a second, or patience has run out."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        busy, total = _core_ticks()
        time.sleep(0.25)
        busy_later, total_later = _core_ticks()
        if busy_later - busy <= _QUIET * (total_later - total):
            return


def _take(contender: Callable[[], int], processor_time: bool) -> Turn:
    began, used = time.perf_counter(), time.process_time()
    votes = contender()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    return Turn(votes / (used if processor_time else seconds), used / seconds)


def core_seconds() -> float:
    """Seconds that the machine's cores have been busy, all together and with whomever."""
    return _core_ticks()[0] / os.sysconf("SC_CLK_TCK")


def _core_ticks() -> tuple[int, int]:
    """(busy, all) ticks of the machine's cores so far; zeros where the kernel doesn't say."""
    statistics_file = Path("/proc/stat")
    if not statistics_file.exists():
        return 0, os.cpu_count() or 1
    user, nice, system, idle, waiting, *rest = map(int, statistics_file.read_text().split()[1:9])
    busy = user + nice + system + sum(rest)
    return busy, busy + idle + waiting
