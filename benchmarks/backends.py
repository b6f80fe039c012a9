"""``python -m benchmarks.backends``: votes a second with one worker and two, by backend and kind of model.

The ratio is to one thread, in turns. The first quarter of the votes isn't counted, so that starting processes isn't
either; seconds to the first votes are the last column. On a machine that others use the clock says little: votes a
second of the processors' time, of this process and all that it started, tell what a backend itself costs. Two workers
that aren't held up are then as fast as twice that ratio. With ``--tries`` a turn during which others used more than a
tenth of a core is taken again; what is left of such turns after so many tries is told below the table.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from benchmarks.interleave import Ratio, core_seconds, wait_until_quiet
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.sampling import Execution, Numerics
from smoothcert.smoothing import SmoothedClassifier

SHAPES: dict[str, tuple[int, ...]] = {
    "python": (64,),
    "forest": (64,),
    "lenet": (1, 28, 28),
    "lenet-compiled": (1, 28, 28),
    "resnet20": (3, 32, 32),
}
_QUIET = 0.1  # cores that others may use
VOTES = {"python": 100_000, "forest": 60_000, "lenet": 60_000, "lenet-compiled": 60_000, "resnet20": 6_000}


def python(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A model that is a loop of the interpreter."""
    sums = np.zeros((len(batch), 2))
    for place, row in enumerate(batch.tolist()):
        total = 0.0
        for value in row:
            total += value
        sums[place] = total, -total
    return sums


def model_named(name: str) -> Any:
    """One of the models."""
    if name == "python":
        return python
    if name != "forest":
        architecture = "cifar_resnet20" if name == "resnet20" else "lenet"
        return initialise(ModelSpec(architecture, SHAPES[name], tuple("0123456789")), seed=0)
    drawn = np.random.default_rng(0)
    x = drawn.random((500, 64))
    return RandomForestClassifier(50, random_state=0, n_jobs=1).fit(x, (x.sum(1) > 32).astype(int))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = _parser()
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    plans = [("threads", 1), *((backend, workers) for backend in options.backends for workers in (1, 2))]
    plans = list(dict.fromkeys(plans))
    heads = ("votes a second / one thread", "range", "votes a processor's second / one thread", "range")
    table = Table("model", "backend", "workers", *heads, "seconds to start")
    disturbed = 0
    for name in options.models:
        model = model_named(name)
        rates: dict[tuple[str, int], list[float]] = {plan: [] for plan in plans}
        costs: dict[tuple[str, int], list[float]] = {plan: [] for plan in plans}
        starts: dict[tuple[str, int], list[float]] = {plan: [] for plan in plans}
        for _ in range(options.repeats):
            for plan in plans:
                turn = _quiet_turn(model, name, options, *plan)
                disturbed += turn.others > _QUIET
                rates[plan].append(turn.rate)
                costs[plan].append(turn.cost)
                starts[plan].append(turn.start)
        for (backend, workers), found in rates.items():
            ratio = Ratio.of([one / base for one, base in zip(found, rates["threads", 1])])
            spent = [one / base for one, base in zip(costs[backend, workers], costs["threads", 1])]
            by_time = Ratio.of(spent)
            start = min(starts[backend, workers])
            table.add_row(
                name,
                backend,
                str(workers),
                f"{ratio.median:.2f}",
                f"{ratio.low:.2f} – {ratio.high:.2f}",
                f"{by_time.median:.2f}",
                f"{by_time.low:.2f} – {by_time.high:.2f}",
                f"{start:.1f}",
            )
    Console(width=130).print(table)
    turns = len(options.models) * options.repeats * len(plans)
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; others disturbed {disturbed} of {turns} turns"
    )


@dataclass(frozen=True)
class Turn:
    """Votes a second by the clock and by the processors' time, seconds to the first, and cores that others used."""

    rate: float
    cost: float
    start: float
    others: float


def _quiet_turn(model: Any, name: str, options: argparse.Namespace, backend: str, workers: int) -> Turn:
    """A turn that others left alone, or the one of all tries that they disturbed least."""
    turns: list[Turn] = []
    for _ in range(options.tries):
        if options.tries > 1:
            wait_until_quiet(options.patience)
        turns.append(_take(model, name, options.share, backend, workers))
        if turns[-1].others <= _QUIET:
            break
    return min(turns, key=lambda turn: turn.others)


def _take(model: Any, name: str, share: float, backend: str, workers: int) -> Turn:
    execution = Execution(workers=workers, backend=backend)
    votes = max(1000, int(VOTES[name] * share) // 4)
    numerics = Numerics(route="compiled") if name.endswith("compiled") else Numerics()
    classifier = SmoothedClassifier(
        model, sigma=0.25, n=votes, seed=0, levels=255, execution=execution, numerics=numerics
    )
    classifier.prepare(SHAPES[name])
    moments: list[tuple[float, int]] = []
    spent: list[tuple[float, float]] = []

    total, done, begun = 4 * (votes + classifier.plan.n0), 0, 0

    def note(votes: int) -> None:
        nonlocal done, begun
        moments.append((time.perf_counter(), votes))
        done += votes
        if (not spent and done >= total / 4) or done == total:
            begun = begun or len(moments)
            spent.append((_processor_seconds(), core_seconds()))

    began = time.perf_counter()
    inputs = ((index, np.full(SHAPES[name], 0.5, np.float32)) for index in range(4))
    for _ in classifier.certify_each(inputs, note):
        pass
    seconds = moments[-1][0] - moments[begun - 1][0]
    counted = sum(count for _, count in moments[begun:])
    ours, all_of_them = (last - first for first, last in zip(spent[0], spent[-1]))
    others = max(0.0, all_of_them - ours) / seconds
    return Turn(counted / seconds, counted / ours, moments[0][0] - began, others)


def _processor_seconds() -> float:
    """Of this process and all that it started and that still runs."""
    found = time.process_time()
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = one.cpu_times()
            found += times.user + times.system
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backends", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--backends", nargs="+", default=["threads", "processes"])
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of votes")
    parser.add_argument("--tries", type=int, default=1, help="turns to find one that others left alone")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for that before each")
    return parser


if __name__ == "__main__":
    main()
