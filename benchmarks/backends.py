"""``python -m benchmarks.backends``: votes a second with one worker and two, by backend and kind of model.

The ratio is to one thread, in turns. Votes are counted from the first result to the last, so that starting processes
isn't among them; what it takes is the last column.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

from benchmarks.interleave import Ratio
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.sampling import Execution
from smoothcert.smoothing import SmoothedClassifier

SHAPES: dict[str, tuple[int, ...]] = {"python": (64,), "forest": (64,), "lenet": (1, 28, 28)}
VOTES = {"python": 100_000, "forest": 60_000, "lenet": 60_000}


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
    if name == "lenet":
        return initialise(ModelSpec("lenet", (1, 28, 28), tuple("0123456789")), seed=0)
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
    table = Table("model", "backend", "workers", "votes a second / one thread", "range", "seconds to start")
    for name in options.models:
        model = model_named(name)
        rates: dict[tuple[str, int], list[float]] = {plan: [] for plan in plans}
        starts: dict[tuple[str, int], list[float]] = {plan: [] for plan in plans}
        for _ in range(options.repeats):
            for plan in plans:
                rate, start = _take(model, name, *plan)
                rates[plan].append(rate)
                starts[plan].append(start)
        for (backend, workers), found in rates.items():
            ratio = Ratio.of([one / base for one, base in zip(found, rates["threads", 1])])
            start = min(starts[backend, workers])
            table.add_row(
                name,
                backend,
                str(workers),
                f"{ratio.median:.2f}",
                f"{ratio.low:.2f} – {ratio.high:.2f}",
                f"{start:.1f}",
            )
    Console(width=110).print(table)


def _take(model: Any, name: str, backend: str, workers: int) -> tuple[float, float]:
    """Votes a second, and the seconds to the first of them."""
    execution = Execution(workers=workers, backend=backend)
    classifier = SmoothedClassifier(
        model, sigma=0.25, n=VOTES[name] // 4, seed=0, levels=255, execution=execution
    )
    classifier.prepare(SHAPES[name])
    moments: list[tuple[float, int]] = []
    began = time.perf_counter()
    inputs = ((index, np.full(SHAPES[name], 0.5, np.float32)) for index in range(4))
    for _ in classifier.certify_each(inputs, lambda votes: moments.append((time.perf_counter(), votes))):
        pass
    first, last = moments[0][0], moments[-1][0]
    return sum(votes for _, votes in moments[1:]) / (last - first), first - began


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backends", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--backends", nargs="+", default=["threads", "processes"])
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    return parser


if __name__ == "__main__":
    main()
