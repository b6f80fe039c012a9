"""What a region memory costs as it grows: opening, looking up, storing, main memory.

``python -m benchmarks.memory_lookup --count 100000 --shape 1,28,28`` fills a store in a temporary folder (``--folder``
to choose the disk; ``--postgres`` for a server), opens it as a serving process would, and times questions. Inputs are
made up: sums of a few smooth waves and some noise per pixel, scaled so that two of them are about as far apart as two
test images (MNIST: ℓ2 distance 10, radius 0.5 to 1.5). ``--noise 1`` makes them all noise, the worst case for the
prefilter. Rows are written past the memory's own check (in bulk, with their chain), because checking while filling
would take hours; the classes are all one, so that no region contradicts another.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.memory import status_bytes
from smoothcert.region_memory import Head, MemoryStatement, RegionMemory, StoredAnswer
from smoothcert.region_memory.chain import Row, genesis, next_row
from smoothcert.region_memory.stores import open_store
from smoothcert.region_memory.stores.sqlite import SqliteStore
from smoothcert.region_memory.stores.witness import Witness
from smoothcert.regions import L2Ball

_BATCH = 2000
_WAVES = 40


@dataclass(frozen=True)
class Answer:
    """A certificate that costs nothing, so that only the memory is timed."""

    predicted: int
    region: L2Ball | None


@dataclass(frozen=True)
class Inputs:
    """Made-up images of one kind."""

    shape: tuple[int, ...]
    noise: float
    distance: float

    def draw(self, count: int, seed: int) -> NDArray[np.float32]:
        """``count`` inputs, one per row."""
        rng = np.random.default_rng(seed)
        size = int(np.prod(self.shape))
        waves = np.random.default_rng(0).normal(size=(_WAVES, *self.shape))
        for axis in (-2, -1):
            for _ in range(3):
                waves = waves + np.roll(waves, 1, axis) + np.roll(waves, 2, axis) + np.roll(waves, 4, axis)
        waves = waves.reshape(_WAVES, size) / np.linalg.norm(
            waves.reshape(_WAVES, size), axis=1, keepdims=True
        )
        smooth = rng.normal(size=(count, _WAVES)) @ waves * np.sqrt((1 - self.noise) / _WAVES)
        rough = rng.normal(size=(count, size), scale=np.sqrt(self.noise / size))
        return np.asarray((smooth + rough) * (self.distance / np.sqrt(2)), dtype=np.float32)


def batches(statement: MemoryStatement, inputs: Inputs, count: int, radius: float) -> Iterator[list[Row]]:
    """``count`` records with a valid chain, some thousand at a time."""
    head = genesis(statement)
    for start in range(0, count, _BATCH):
        rows = []
        for x in inputs.draw(min(_BATCH, count - start), seed=start + 1):
            region = L2Ball(x.reshape(inputs.shape), radius)
            rows.append(next_row(head, StoredAnswer(0, region).encode()))
            head = Head(rows[-1].id, rows[-1].hash)
        yield rows


def fill_sqlite(path: Path, statement: MemoryStatement, filling: Iterator[list[Row]]) -> None:
    """Write records in few large transactions."""
    SqliteStore(path, statement).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for rows in filling:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO records VALUES (?, ?, ?)", [(r.id, r.payload, r.hash) for r in rows]
        )
        connection.execute("UPDATE head SET count = ?, hash = ?", (rows[-1].id, rows[-1].hash))
        connection.execute("COMMIT")
    connection.close()
    Witness(path).advance(Head(rows[-1].id, rows[-1].hash))


def fill_postgres(address: str, statement: MemoryStatement, filling: Iterator[list[Row]]) -> None:
    """The same into a schema of a database."""
    open_store(address, statement).close()
    server, _, schema = address.partition("#")
    with psycopg.connect(server) as connection:
        for rows in filling:
            with connection.cursor().copy(f"COPY {schema}.records (id, payload, hash) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row((row.id, row.payload, row.hash))
            connection.execute(
                f"UPDATE {schema}.head SET count = %s, hash = %s", (rows[-1].id, rows[-1].hash)
            )
            connection.commit()


def timed(questions: int, ask: Callable[[int], object]) -> list[float]:
    taken = []
    for number in range(questions):
        start = time.perf_counter()
        ask(number)
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


def shown(taken: list[float]) -> str:
    return f"{statistics.median(taken):8.2f} ms (to {max(taken):.2f})"


def measure(
    path: Path | str, statement: MemoryStatement, inputs: Inputs, questions: int, radius: float
) -> None:
    before, start = status_bytes("VmRSS"), time.perf_counter()
    memory = RegionMemory.open(path, statement)
    opened = time.perf_counter() - start
    count = len(memory)
    print(f"  open and verify      {opened:8.1f} s, {opened / count * 1e6:.0f} µs a record")
    print(
        f"  main memory          {memory.nbytes / 1e6:8.0f} MB for looking up, {memory.nbytes / count:.0f} B a record"
    )
    print(f"  resident             {(status_bytes('VmRSS') - before) / 1e6:8.0f} MB more than before opening")
    old = inputs.draw(_BATCH, seed=1)[:questions]
    new = inputs.draw(questions, seed=10**9)
    near = [len(memory._ledger._index.near(x.astype(np.float64), radius)) for x in new]
    print(
        f"  candidates           {statistics.median(near):8.0f} of {count} read for a new input (to {max(near)})"
    )

    def certify(x: NDArray[np.float32]) -> Answer:
        return Answer(0, L2Ball(x.astype(np.float64), radius))

    hits = timed(len(old), lambda i: memory.look_up(old[i].reshape(inputs.shape) + np.float32(1e-4)))
    misses = timed(questions, lambda i: memory.look_up(new[i].reshape(inputs.shape)))
    stored = timed(questions, lambda i: memory.answer(new[i].reshape(inputs.shape), certify))
    print(f"  answer from memory   {shown(hits)}")
    print(f"  nothing stored there {shown(misses)}")
    print(f"  answer and store     {shown(stored)}, certifying apart")
    memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--shape", default="1,28,28")
    parser.add_argument(
        "--noise", type=float, default=0.3, help="share of the variance that is noise per pixel"
    )
    parser.add_argument("--distance", type=float, default=10.0, help="typical ℓ2 distance of two inputs")
    parser.add_argument("--radius", type=float, default=0.8)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument(
        "--postgres",
        metavar="ADDRESS",
        help="postgresql://…/database#schema, of which the schema is made anew",
    )
    words = parser.parse_args()
    shape = tuple(int(size) for size in words.shape.split(","))
    inputs = Inputs(shape, words.noise, words.distance)
    statement = MemoryStatement("0" * 64, shape, "gaussian", "l2")
    filling = batches(statement, inputs, words.count, words.radius)
    start = time.perf_counter()
    if words.postgres:
        fill_postgres(words.postgres, statement, filling)
        print(f"{words.count} inputs of shape {shape}, noise {words.noise}, in PostgreSQL")
        print(f"  (filled in {time.perf_counter() - start:.0f} s)")
        measure(words.postgres, statement, inputs, words.questions, words.radius)
        return
    folder = Path(tempfile.mkdtemp(prefix="memory-lookup-", dir=words.folder))
    try:
        path = folder / "memory.sqlite"
        fill_sqlite(path, statement, filling)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{words.count} inputs of shape {shape}, noise {words.noise}, {size / 1e9:.2f} GB on disk")
        print(f"  (filled in {time.perf_counter() - start:.0f} s)")
        measure(path, statement, inputs, words.questions, words.radius)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
