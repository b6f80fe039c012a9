"""``python -m benchmarks.journal``: what a run's own bookkeeping costs for a million inputs, and the driver's memory.

Synthetic records go through the real journal. A record that is appended alone is on disk before the next, which is
the disk's time; the other figures are the processor's. ``--part memory`` certifies inputs with a model that is so cheap
that the driver's own memory is seen.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.memory import status_bytes
from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import Progress, certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.runs import Record, create_run, open_run, read_run
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.shards import Shard
from smoothcert.sampling import Execution
from smoothcert.tally import Phase, Stream, Tally

ALONE = 500


def record_of(index: int, chance: random.Random, classes: int) -> Record:
    """An input with votes of so many classes, n = 100 000."""
    right = chance.randrange(50_000, 100_000)
    counts = (right, 100_000 - right, *(0,) * (classes - 2))
    selection = Tally(Stream(0, index, Phase.SELECTION), 0, 100, (100, *(0,) * (classes - 1)))
    estimation = Tally(Stream(0, index, Phase.ESTIMATION), 0, 100_000, counts)
    return Record(index, 0, 0, chance.random(), 0.5, chance.random(), selection, estimation, 0)


def statement(inputs: int, shard: Shard | None = None) -> Manifest:
    """Of a certification."""
    data = {"name": "made-up", "sha256": "0" * 64, "inputs": inputs, "skip": 1, "planned": inputs}
    plan = {"noise": "gaussian", "sigma": 0.5, "n0": 100, "n": 100_000, "alpha": 0.001, "bound": "two-class"}
    return Manifest.of(
        "certify",
        plan,
        {"name": "made-up", "sha256": "0" * 64},
        data | ({} if shard is None else {"shard": str(shard)}),
    ).made_now()


def records(indices: Sequence[int], classes: int) -> Iterator[Record]:
    """Those of some inputs."""
    chance = random.Random(0)
    return (record_of(index, chance, classes) for index in indices)


@contextmanager
def timed(rows: list[tuple[str, str]], what: str, per: int | None = None) -> Iterator[None]:
    """Seconds, those of the processor in brackets, and the process's memory after."""
    began, used = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    memory = f", {status_bytes('VmRSS') / 1e6:.0f} MB resident"
    if per is None:
        rows.append((what, f"{seconds:.1f} s (processor {cpu:.1f} s){memory}"))
    else:
        rows.append((what, f"{1e3 * seconds / per:.2f} ms each (processor {1e3 * cpu / per:.2f} ms){memory}"))


def bookkeeping(folder: Path, inputs: int, shards: int, classes: int) -> list[tuple[str, str]]:
    """What each step costs."""
    rows: list[tuple[str, str]] = []
    whole = folder / "whole"
    with timed(rows, f"{inputs} records written in one step"), open_run(whole, statement(inputs)) as journal:
        journal.append_all(records(range(ALONE, inputs - ALONE), classes))
    size = RunFiles(whole).journal.stat().st_size
    rows.append(("bytes of the journal", f"{size / 1e6:.0f} MB, {size / (inputs - 2 * ALONE):.0f} a record"))
    first = "a record appended, the first ones"
    with open_run(folder / "empty", statement(inputs)) as journal, timed(rows, first, ALONE):
        for one in records(range(ALONE), classes):
            journal.append(one)
    with ExitStack() as held:
        with timed(rows, "the run opened to go on"):
            journal = held.enter_context(open_run(whole, statement(inputs)))
        with timed(rows, "a record appended, the last ones", ALONE):
            for one in records(range(inputs - ALONE, inputs), classes):
                journal.append(one)
    with timed(rows, "the run read"):
        run = read_run(whole)
    with timed(rows, "its digest"):
        _ = run.records.digest
    del run
    parts = [folder / f"shard-{number}" for number in range(1, shards + 1)]
    for number, part in enumerate(parts, start=1):
        shard = Shard(number, shards)
        of_shard = shard.part(range(inputs))
        create_run(part, statement(inputs, shard), list(records(of_shard, classes)))
    with timed(rows, f"{shards} shards merged"):
        merged = merge(parts, folder / "merged")
    if len(merged.records) != inputs:
        raise RuntimeError(f"{len(merged.records)} records were merged of {inputs}")
    return rows


def sign(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The cheapest of models."""
    found: np.ndarray[Any, Any] = (batch[:, 0] > 0).astype(np.int64)
    return found


def driver_memory(folder: Path, inputs: int, looks: Sequence[int]) -> list[tuple[str, str]]:
    """Resident memory of the process that owns a run, after so many inputs."""
    x = np.random.default_rng(0).standard_normal((inputs, 4)).astype(np.float32)
    data = Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b"))
    classifier = SmoothedClassifier(
        sign,
        sigma=0.5,
        n=64,
        n0=16,
        seed=0,
        outputs="labels",
        classes=2,
        execution=Execution(workers=1),
    )
    rows: list[tuple[str, str]] = []
    done, began, used = 0, time.perf_counter(), time.process_time()

    def look(_: Record) -> None:
        nonlocal done
        done += 1
        if done in looks:
            seconds, cpu = time.perf_counter() - began, time.process_time() - used
            rows.append(
                (
                    f"after {done} inputs",
                    f"{status_bytes('VmRSS') / 1e6:.1f} MB resident, {seconds:.0f} s, of the processor "
                    f"{1e3 * cpu / done:.2f} ms an input",
                )
            )

    certify_dataset(classifier, data, folder / "run", progress=Progress(record=look))
    rows.append(("after all were read", f"{status_bytes('VmRSS') / 1e6:.1f} MB"))
    return rows


PARTS: dict[str, Callable[[Path, argparse.Namespace], list[tuple[str, str]]]] = {
    "journal": lambda folder, options: bookkeeping(folder, options.inputs, options.shards, options.classes),
    "memory": lambda folder, options: driver_memory(folder, max(options.looks), options.looks),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    parser.add_argument("--part", choices=PARTS, default="journal")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--looks", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where runs are made (default: the temporary folder)")
    options = parser.parse_args(arguments)
    table = Table("what", "cost")
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        for row in PARTS[options.part](Path(place), options):
            table.add_row(*row)
    Console(width=110).print(table)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
