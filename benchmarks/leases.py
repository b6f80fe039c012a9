"""``python -m benchmarks.leases``: bytes of a lease, votes in it, and the driver's time to make and pack one.

A driver that does nothing else sends at most one over that time; the line to its workers carries that many times the
bytes. ``--batch`` makes leases larger: an input is sent once with each.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from smoothcert import SmoothedClassifier
from smoothcert.sampling import Execution, Numerics
from smoothcert.sampling.backends import threads
from smoothcert.sampling.backends.base import Cast
from smoothcert.sampling.lanes import Task

SHAPES = {"MNIST": (1, 28, 28), "CIFAR-10": (3, 32, 32), "ImageNet": (3, 224, 224)}
ROWS = 64


def first(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A model that looks at one number."""
    found: np.ndarray[Any, Any] = (batch.reshape(len(batch), -1)[:, 0] > 0.5).astype(np.int64)
    return found


def measure(shape: tuple[int, ...], batch: int | None, votes: int) -> tuple[float, float, float]:
    """(votes, bytes, seconds to make and pack) of a lease, medians."""
    seen: list[tuple[int, int, float]] = []
    submit = threads._Threads.submit

    def packed(self: Any, task: Task) -> Future[list[Cast]]:
        began = time.process_time()
        content = pickle.dumps(task)
        seconds = time.process_time() - began
        count = sum(block.last - block.first for one in task for block in one if block is not None)
        seen.append((count, len(content), seconds))
        return submit(self, task)

    threads._Threads.submit = packed  # type: ignore[method-assign]
    try:
        execution = Execution(workers=1, batch=batch)
        classifier = SmoothedClassifier(
            first, sigma=0.5, n=votes, n0=100, seed=0, levels=255, outputs="labels", classes=2, execution=execution,
            numerics=Numerics(chunk=ROWS),
        )  # fmt: skip
        inputs = ((index, np.full(shape, 0.5, np.float32)) for index in range(2))
        for _ in classifier.certify_each(inputs):
            pass
    finally:
        threads._Threads.submit = submit  # type: ignore[method-assign]
    largest = sorted(seen)[len(seen) // 2 :]  # the last of an input are short
    counts, sizes, seconds = zip(*largest)
    return statistics.median(counts), statistics.median(sizes), statistics.median(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leases", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--votes", type=int, default=8192)
    options = parser.parse_args(arguments)
    table = Table("inputs", "--batch", "votes in a lease", "bytes", "bytes a vote", "driver's µs a lease")
    for name, shape in SHAPES.items():
        for batch in (None, *options.batch):
            votes, size, seconds = measure(shape, batch, options.votes)
            cells = (f"{votes:.0f}", f"{size:.0f}", f"{size / votes:.1f}", f"{1e6 * seconds:.0f}")
            table.add_row(name, "default" if batch is None else str(batch), *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
