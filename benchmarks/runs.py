"""What a run's own bookkeeping costs, and a region memory's, as they grow.

``python -m benchmarks.runs journal`` (driver, pages, memory). Records, runs and images are made up; seconds of the
processor stand beside those of the clock, because what others do on the machine and the disk's time are in the latter.
"""

from __future__ import annotations

import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import command_line, show, status_bytes
from smoothcert import Execution, SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.regions.bodies import L2Ball
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run, open_run, read_run
from smoothcert.runs.statement import Shard
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.memory_ledger import StoredAnswer
from smoothcert.smoothing.stores.base import Head, Row, genesis, next_row, open_store
from smoothcert.smoothing.stores.sqlite import SqliteStore, Witness
from smoothcert.tally import Phase, Stream, Tally

N0, N, SIGMA = 100, 100_000, 0.5
ALONE = 500
"""Records that are appended one by one."""
BATCH, WAVES = 2000, 40

app = command_line("runs", __doc__)


def _records(indices: Sequence[int], classes: int) -> Iterator[Record]:
    chance, others = random.Random(0), (0,) * (classes - 2)
    for index in indices:
        right = chance.randrange(N // 2, N)
        selection = Tally(Stream(0, index, Phase.SELECTION), 0, N0, (N0, 0, *others))
        estimation = Tally(Stream(0, index, Phase.ESTIMATION), 0, N, (right, N - right, *others))
        yield Record(index, 0, 0, chance.random(), SIGMA, chance.random(), selection, estimation, 0)


def _statement(inputs: int, shard: Shard | None = None) -> Manifest:
    data = {"name": "made-up", "sha256": "0" * 64, "inputs": inputs, "skip": 1, "planned": inputs}
    plan = {"noise": "gaussian", "sigma": SIGMA, "norm": "l2", "bound": "two-class"}
    plan |= {"n0": N0, "n": N, "alpha": 0.001, "seed": 0}
    data |= {} if shard is None else {"shard": str(shard)}
    return Manifest.of("certify", plan, {"name": "made-up", "sha256": "0" * 64}, data).made_now()


@app.command
def journal(
    *, inputs: int = 1_000_000, classes: int = 10, shards: int = 8, folder: Path | None = None
) -> None:
    """Write, append, resume, read and merge a run; a record that is appended alone is on disk before the next.

    Parameters
    ----------
    folder:
        Where runs are made (default: the temporary folder).
    """
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        whole = Path(place) / "whole"
        with (
            _timed(rows, f"{inputs} records written in one step"),
            open_run(whole, _statement(inputs)) as opened,
        ):
            opened.append_all(_records(range(ALONE, inputs - ALONE), classes))
        size = RunFiles(whole).journal.stat().st_size
        rows.append(
            ("bytes of the journal", f"{size / 1e6:.0f} MB, {size / (inputs - 2 * ALONE):.0f} a record")
        )
        with (
            open_run(Path(place) / "empty", _statement(inputs)) as opened,
            _timed(rows, "a record appended, the first ones", ALONE),
        ):
            for record in _records(range(ALONE), classes):
                opened.append(record)
        with ExitStack() as held:
            with _timed(rows, "the run resumed"):
                opened = held.enter_context(open_run(whole, _statement(inputs)))
            with _timed(rows, "a record appended, the last ones", ALONE):
                for record in _records(range(inputs - ALONE, inputs), classes):
                    opened.append(record)
        with _timed(rows, "the run read"):
            run = read_run(whole)
        with _timed(rows, "its digest"):
            _ = run.records.digest
        del run
        parts = [Path(place) / f"shard-{number}" for number in range(1, shards + 1)]
        for number, part in enumerate(parts, start=1):
            shard = Shard(number, shards)
            create_run(part, _statement(inputs, shard), list(_records(shard.part(range(inputs)), classes)))
        with _timed(rows, f"{shards} shards merged"):
            merged = merge(parts, Path(place) / "merged")
        if len(merged.records) != inputs:
            raise RuntimeError(f"{len(merged.records)} records were merged of {inputs}")
    show(["what", "cost"], rows)


@contextmanager
def _timed(rows: list[tuple[str, str]], what: str, per: int | None = None) -> Iterator[None]:
    """Seconds, those of the processor in brackets, and the process's memory after."""
    began, used = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    memory = f", {status_bytes('VmRSS') / 1e6:.0f} MB resident"
    if per is None:
        rows.append((what, f"{seconds:.1f} s (processor {cpu:.1f} s){memory}"))
    else:
        rows.append((what, f"{1e3 * seconds / per:.2f} ms each (processor {1e3 * cpu / per:.2f} ms){memory}"))


@app.command
def driver(*, at: tuple[int, ...] = (10_000, 50_000, 100_000)) -> None:
    """Resident memory of the process that owns a run after so many inputs, with the cheapest of models."""
    x = np.random.default_rng(0).standard_normal((max(at), 4)).astype(np.float32)
    data = Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b"))
    classifier = SmoothedClassifier(
        _sign,
        sigma=SIGMA,
        n=64,
        n0=16,
        seed=0,
        outputs="labels",
        classes=2,
        execution=Execution(workers=1),
    )
    rows: list[tuple[str, str]] = []
    done, began, used = 0, time.perf_counter(), time.process_time()

    def note(_: Record) -> None:
        nonlocal done
        done += 1
        if done in at:
            cpu = 1e3 * (time.process_time() - used) / done
            memory, seconds = status_bytes("VmRSS") / 1e6, time.perf_counter() - began
            rows.append(
                (f"after {done} inputs", f"{memory:.1f} MB, {seconds:.0f} s, processor {cpu:.2f} ms each")
            )

    with tempfile.TemporaryDirectory() as folder:
        certify_dataset(classifier, data, Path(folder) / "run", progress=Progress(record=note))
        rows.append(("after all were read", f"{status_bytes('VmRSS') / 1e6:.1f} MB"))
    show(["when", "resident"], rows)


def _sign(batch: NDArray[Any]) -> NDArray[Any]:
    labels: NDArray[Any] = (batch[:, 0] > 0).astype(np.int64)
    return labels


@app.command
def pages(*, runs: int = 100, inputs: int = 10_000) -> None:
    """How long ``smoothcert table`` and ``report`` take over many large runs."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"run{k}" for k in range(runs)]
        create_run(paths[0], _statement(inputs), list(_records(range(inputs), 10)))
        for path in paths[1:]:
            shutil.copytree(paths[0], path)
        page = Path(folder) / "page"
        for words in (
            ["table", "--layout", "runs", "--format", "csv"],
            ["table", "--layout", "paper", "--format", "csv"],
            ["report", "--out", str(page)],
        ):
            command = [sys.executable, "-m", "smoothcert", words[0], *map(str, paths), *words[1:]]
            began, used = time.perf_counter(), _seconds_of_children()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds, busy = time.perf_counter() - began, _seconds_of_children() - used
            rows.append([" ".join(words[:3]).replace(str(page), "DIR"), f"{seconds:.2f}", f"{busy:.2f}"])
        size = sum(file.stat().st_size for file in page.rglob("*")) / 1e6
    show(
        ["command", "seconds", "of the processor"],
        rows,
        f"{runs} runs of {inputs} inputs, page {size:.2f} MB",
    )


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@app.command
def memory(
    *,
    count: int = 10_000,
    shape: tuple[int, ...] = (1, 28, 28),
    noise: float = 0.3,
    distance: float = 10.0,
    radius: float = 0.8,
    questions: int = 30,
    folder: Path | None = None,
    postgres: str | None = None,
) -> None:
    """Open a region memory as a serving process would, look answers up in it, store more.

    Inputs are sums of a few smooth waves and some noise per pixel, scaled so that two of them are about as far apart as
    two test images (MNIST: ℓ2 distance 10, radius 0.5 to 1.5). ``--noise 1`` makes them all noise, the worst case for
    the prefilter. Rows are written past the memory's own check (in bulk, with their chain), because checking while
    filling would take hours; the classes are all one, so that no region contradicts another.

    Parameters
    ----------
    noise:
        Share of the variance that is noise per pixel.
    folder:
        Where the store is made (default: the temporary folder).
    postgres:
        ``postgresql://…/database#schema``, of which the schema is made anew.
    """
    images = MadeUpImages(shape, noise, distance)
    statement = MemoryStatement("0" * 64, shape, "gaussian", "l2")
    filling = _chained(statement, images, count, radius)
    if postgres is not None:
        _fill_postgres(postgres, statement, filling)
        _ask(postgres, statement, images, questions, radius)
        return
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "memory.sqlite"
        _fill_sqlite(path, statement, filling)
        size = sum(file.stat().st_size for file in Path(place).iterdir())
        _ask(path, statement, images, questions, radius, f"{size / 1e9:.2f} GB on disk")


@dataclass(frozen=True)
class MadeUpImages:
    """Images of one kind."""

    shape: tuple[int, ...]
    noise: float
    distance: float

    def draw(self, count: int, seed: int) -> NDArray[np.float32]:
        """``count`` inputs, one per row."""
        rng = np.random.default_rng(seed)
        size = int(np.prod(self.shape))
        waves = np.random.default_rng(0).normal(size=(WAVES, *self.shape))
        for axis in (-2, -1):
            for _ in range(3):
                waves = waves + np.roll(waves, 1, axis) + np.roll(waves, 2, axis) + np.roll(waves, 4, axis)
        flat = waves.reshape(WAVES, size)
        flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
        smooth = rng.normal(size=(count, WAVES)) @ flat * np.sqrt((1 - self.noise) / WAVES)
        rough = rng.normal(size=(count, size), scale=np.sqrt(self.noise / size))
        return np.asarray((smooth + rough) * (self.distance / np.sqrt(2)), dtype=np.float32)


def _chained(
    statement: MemoryStatement, images: MadeUpImages, count: int, radius: float
) -> Iterator[list[Row]]:
    head = genesis(statement)
    for start in range(0, count, BATCH):
        rows = []
        for x in images.draw(min(BATCH, count - start), seed=start + 1):
            rows.append(next_row(head, StoredAnswer(0, L2Ball(x.reshape(images.shape), radius)).encode()))
            head = Head(rows[-1].id, rows[-1].hash)
        yield rows


def _fill_sqlite(path: Path, statement: MemoryStatement, filling: Iterator[list[Row]]) -> None:
    SqliteStore(path, statement).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for rows in filling:
        connection.execute("BEGIN")
        values = [(row.id, row.payload, row.hash) for row in rows]
        connection.executemany("INSERT INTO records VALUES (?, ?, ?)", values)
        connection.execute("UPDATE head SET count = ?, hash = ?", (rows[-1].id, rows[-1].hash))
        connection.execute("COMMIT")
    connection.close()
    Witness(path).advance(Head(rows[-1].id, rows[-1].hash))


def _fill_postgres(address: str, statement: MemoryStatement, filling: Iterator[list[Row]]) -> None:
    import psycopg

    open_store(address, statement).close()
    server, _, schema = address.partition("#")
    with psycopg.connect(server) as connection:
        for rows in filling:
            with connection.cursor().copy(f"COPY {schema}.records (id, payload, hash) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row((row.id, row.payload, row.hash))
            last = (rows[-1].id, rows[-1].hash)
            connection.execute(f"UPDATE {schema}.head SET count = %s, hash = %s", last)
            connection.commit()


@dataclass(frozen=True)
class _Answer:
    """A certificate that costs nothing, so that only the memory is timed."""

    predicted: int
    region: L2Ball | None


def _ask(
    place: Path | str,
    statement: MemoryStatement,
    images: MadeUpImages,
    questions: int,
    radius: float,
    note: str = "",
) -> None:
    before, began = status_bytes("VmRSS"), time.perf_counter()
    memory = RegionMemory.open(place, statement)
    opened, count = time.perf_counter() - began, len(memory)
    resident = status_bytes("VmRSS") - before
    old = images.draw(BATCH, seed=1)[:questions].reshape(-1, *images.shape)
    new = images.draw(questions, seed=10**9).reshape(-1, *images.shape)

    def certify(x: NDArray[np.float32]) -> _Answer:
        return _Answer(0, L2Ball(x.astype(np.float64), radius))

    rows = [
        ("open and verify", f"{opened:.1f} s, {opened / count * 1e6:.0f} µs a record"),
        (
            "main memory",
            f"{memory.nbytes / 1e6:.0f} MB for looking up, {memory.nbytes / count:.0f} B a record",
        ),
        ("resident", f"{resident / 1e6:.0f} MB more than before opening"),
        ("answer from memory", _milliseconds(old, lambda x: memory.look_up(x + np.float32(1e-4)))),
        ("nothing stored there", _milliseconds(new, memory.look_up)),
        ("answer and store", _milliseconds(new, lambda x: memory.answer(x, certify)) + ", certifying apart"),
    ]
    memory.close()
    show(["what", "cost"], rows, note)


def _milliseconds(inputs: NDArray[np.float32], ask: Callable[[NDArray[np.float32]], object]) -> str:
    taken = []
    for x in inputs:
        began = time.perf_counter()
        ask(x)
        taken.append((time.perf_counter() - began) * 1e3)
    return f"{statistics.median(taken):.2f} ms (to {max(taken):.2f})"


if __name__ == "__main__":
    app()
