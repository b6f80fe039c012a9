"""Noisy passes: rows are drawn, padded to one shape, shown to the model and counted.

A task is launched as a whole, and its counts come back in one read. On a device, launching takes nothing from it but
the answers' shape: while one task is under way the next can be launched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.bounds.base import VoteKind
from smoothcert.engine.checking import RowCheck
from smoothcert.engine.drawing import (
    Arrival,
    DeviceDrawing,
    HostDrawing,
    Part,
    Rows,
    Transfers,
    passes_ahead,
    passes_of,
    sent,
)
from smoothcert.engine.execution import Execution
from smoothcert.engine.schedule import Block, Finished, Job, Procedure, Task, blocks_of
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.base import Prepared, check_answers
from smoothcert.models.numerics import PHILOX
from smoothcert.models.outputs import Ballots, VoteCounts, failure, naming, read_ballots
from smoothcert.perturb.base import Copies, Perturbation
from smoothcert.perturb.grid import Grid, HeldCopies
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally
from smoothcert.threads import Workers

if TYPE_CHECKING:
    from smoothcert.engine.engine import Engine

MOST_SOFT_VOTES = ((1 << 63) - 1) // SOFT_UNIT
"""That can be added up as whole numbers of 64 bits."""

P = TypeVar("P", bound=Rows)
R = TypeVar("R")


@dataclass(frozen=True)
class Pending:
    """A task that was launched."""

    blocks: Sequence[Block]
    counts: VoteCounts
    arrival: Arrival
    began: float
    purpose: str

    def collect(self, since: float = 0.0) -> list[tuple[NDArray[np.int64], float]]:
        """The sums of each block and its share of the seconds after ``since``; waits for the device."""

        def named(places: Sequence[int], reason: str) -> ModelError:
            return failure(self.purpose, [self.blocks[place].index for place in places], reason)

        sums = self.counts.read(self.arrival.wait(), named)
        seconds = time.perf_counter() - max(self.began, since)
        share = seconds / sum(block.votes for block in self.blocks)
        return [(counted, share * block.votes) for counted, block in zip(sums, self.blocks)]


class Passes(Workers):
    """A prepared model, what draws the rows that it is shown, and the worker threads that show them."""

    def __init__(
        self, prepared: Prepared, votes: VoteKind, execution: Execution, purpose: str = "voting on {which}"
    ) -> None:
        if votes == "soft" and prepared.kind == "labels":
            raise InvalidValueError("soft votes need scores or probabilities, but the model returns labels")
        self.prepared = prepared
        self.votes: VoteKind = votes
        self.layout = prepared.numerics.layout()
        self.dtype = prepared.numerics.noise_dtype()
        self.workers = prepared.workers(execution.worker_count())
        self.purpose = purpose
        self.checked = RowCheck()
        """What was seen of the model on the rows of runs."""
        self.on_device = prepared.numerics.generator == PHILOX
        """Whether rows are drawn, and votes counted, where the model is."""
        self.transfers = Transfers()
        self._device = prepared.device if self.on_device else "cpu"
        self._host = HostDrawing(prepared)
        with self._current():
            self._drawing = DeviceDrawing(prepared) if self.on_device else self._host
            self._order = None if prepared.order is None else sent(np.array(prepared.order), self._device)

    def tensor(self, index: int, x: NDArray[np.generic]) -> Tensor:
        """An input in the type of its noise, checked before anything is spent on it."""
        row = np.array(checked_input(index, x, self.prepared.input_shape), dtype=np.float64)
        return torch.from_numpy(row).to(self.dtype)

    def no_votes(self, wanted: int) -> NDArray[np.int64]:
        """Where sums of so many votes are gathered; refused where they could overflow."""
        if self.votes == "soft" and wanted > MOST_SOFT_VOTES:
            raise InvalidValueError(
                f"{wanted} soft votes at once would add up to more than 64 bits hold: at most {MOST_SOFT_VOTES}"
            )
        return np.zeros((3 if self.votes == "soft" else 1, self.prepared.classes), dtype=np.int64)

    def tally(self, stream: Stream, start: int, sums: NDArray[np.int64]) -> Tally:
        """The votes of a stream from ``start`` on that were gathered."""
        rows = [tuple(int(v) for v in row) for row in sums]
        return Tally(stream, start, start + sum(rows[0]), rows[0], *rows[1:])

    def launch(self, task: Task) -> Pending:
        """Draw, show and count a task's votes; no device is waited for."""
        began, blocks, prepared = time.perf_counter(), blocks_of(task), self.prepared
        passes = [parts for one in passes_of(task, self.layout.chunk) for parts in one]
        with torch.inference_mode(), self._current():
            told = [[part[:3] for part in parts] for parts in passes]
            places = sent(np.array(told, dtype=np.int64), self._device)
            counts = VoteCounts(
                len(blocks), prepared.kind, prepared.classes, self.votes, self._order, self._device
            )
            rows, done = self._drawing.rows(task, passes), 0
            together = passes_ahead(self.layout.chunk, prepared.input_shape)
            while done < len(passes):
                parts = passes[done : done + together]
                own = places[done : done + together]
                answers = [self._answered(rows, one) for one in parts]
                with self._named(part for one in parts for part in one):
                    # At once where that changes no number: answers of several types would be joined in one of them.
                    if len({(each.dtype, each.shape[1:]) for each in answers}) == 1:
                        size = self.layout.chunk // len(parts[0])
                        whole = all(part.last - part.first == size for one in parts for part in one)
                        joined = answers[0] if len(answers) == 1 else torch.cat(answers)
                        counts.add(joined, own.flatten(0, 1), whole)
                    else:
                        for each, of in zip(answers, own):
                            counts.add(each, of)
                done += len(parts)
            next(rows, None)  # gives back what it has borrowed
            arrival = self.transfers.fetch(counts.held)
        return Pending(blocks, counts, arrival, began, self.purpose)

    def cast_task(self, task: Task) -> list[tuple[NDArray[np.int64], float]]:
        """The sums of each block of a task, in the order of :func:`blocks_of`, and the seconds it took."""
        return self.launch(task).collect()

    def drawn(self, block: Block) -> NDArray[np.float64]:
        """The noisy copies of a block within its first pass, as the model sees them; no vote is cast."""
        task = [[block, *[None] * (self.layout.slots - 1)]]
        ((parts, *_),) = passes_of(task, self.layout.chunk)
        with torch.inference_mode(), self._current():
            (rows,) = self._drawing.rows(task, [parts])
            return np.array(self.transfers.fetch(rows[block.wanted]).wait(), dtype=np.float64)

    def cast(self, slots: Sequence[P | None]) -> list[tuple[P, Ballots]]:
        """Row by row, what each of equal slots wanted of one pass, but for the empty ones; called in a worker."""
        filled = [(slot, rows) for slot, rows in enumerate(slots) if rows is not None]
        size = self.layout.chunk // len(slots)
        with (
            torch.inference_mode(),
            naming(self.purpose, [rows.index for _, rows in filled], self.layout.chunk),
        ):
            ballots = self._read(self.prepared.outputs(self._host.filled(slots)))
        return [(rows, ballots.part(slot * size, rows.wanted)) for slot, rows in filled]

    def labels(self, pool: ThreadPoolExecutor, rows: Tensor) -> NDArray[np.int64]:
        """The votes on rows that are noisy already."""

        def labels(part: Tensor) -> NDArray[np.int64]:
            with torch.inference_mode(), naming(self.purpose, [0], self.layout.chunk):
                return self._read(self.prepared.outputs_of(part.to(self.dtype))).labels

        return np.concatenate(list(pool.map(labels, torch.split(rows, self.layout.chunk))))

    def _answered(self, rows: Iterator[Tensor], parts: Sequence[Part]) -> Tensor:
        with self._named(parts):
            return self._answers(next(rows))

    def _named(self, parts: Iterable[Part]) -> AbstractContextManager[None]:
        return naming(self.purpose, [part.block.index for part in parts], self.layout.chunk)

    def _answers(self, batch: Tensor) -> Tensor:
        """The model's, where they are counted; copied with the lock held, as they may be the model's own memory."""
        with self.prepared.evaluating() as model:
            answers = model(batch)
            check_answers(self.prepared.name, answers, self.layout.chunk)
            return answers.detach().to(self._device, copy=True)

    def _read(self, outputs: Tensor) -> Ballots:
        return read_ballots(outputs, self.prepared.kind, self.prepared.classes, self.votes)

    def _current(self) -> AbstractContextManager[object]:
        """Compiled models are launched on the thread's current device, whatever their tensors' is."""
        return torch.cuda.device(self._device) if self._device.startswith("cuda") else nullcontext()


def checked_input(index: int, x: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """An input as an array; refused unless it has this shape and holds finite real numbers."""
    found = np.asarray(x)
    if found.shape != shape:
        raise InvalidValueError(f"input {index} has shape {found.shape}, the model was prepared for {shape}")
    if found.dtype.kind not in "biuf":
        raise InvalidValueError(f"input {index} must hold real numbers, got dtype {found.dtype}")
    if not np.isfinite(found).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise InvalidValueError(f"input {index} holds {found[where]} at {where}; inputs must be finite")
    return found


@dataclass(frozen=True, eq=False)
class Voter:
    """What a draw names: the engine knows neither the noise nor what is counted."""

    passes: Passes
    copies: Copies
    seed: int
    index: int

    def stream(self, phase: Phase) -> Stream:
        """The stream of a phase."""
        return Stream(self.seed, self.index, phase)


class NoisyModel:
    """A prepared model on an engine, with the streams of one seed and noise on one grid: makes the voters of inputs."""

    def __init__(self, engine: Engine, prepared: Prepared, votes: VoteKind, seed: int, grid: Grid) -> None:
        self.engine, self.seed, self.grid = engine, seed, grid
        self.passes = engine.passes(prepared, votes)

    def voter(
        self, index: int, x: NDArray[Any], noise: Perturbation, held: NDArray[np.bool_] | None = None
    ) -> Voter:
        """The voter on an input, once it is known to be one: no vote is spent before.

        Where it is ``held``, an input has no noise: the model gets those very values, or they are refused.
        """
        prepared = self.passes.prepared
        checked = checked_input(index, x, prepared.input_shape)
        dtype = prepared.numerics.noise_dtype_name
        if held is None:
            return Voter(self.passes, noise.copies(checked, self.grid, dtype, index), self.seed, index)
        row = held_row(prepared.name, checked, held, dtype)
        free = torch.from_numpy(np.flatnonzero(~held))
        copies = HeldCopies(noise.copies(checked[~held], self.grid, dtype, index), row, free)
        return Voter(self.passes, copies, self.seed, index)

    def job(
        self,
        index: int,
        x: NDArray[Any],
        noise: Perturbation,
        procedure: Procedure[R],
        drawn: Mapping[Phase, int] | None = None,
    ) -> Job[R]:
        """A procedure that asks this model alone."""
        return Job((self.voter(index, x, noise),), procedure, drawn or {})

    def run(
        self, jobs: Iterable[Job[R]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Finished[R]]:
        """See :meth:`Engine.run`."""
        return self.engine.run(jobs, on_votes)

    def first_copies(
        self, index: int, x: NDArray[Any], noise: Perturbation, phase: Phase, count: int
    ) -> NDArray[np.float64]:
        """The first noisy copies of an input in one of its streams, as the model sees them: a pass of them at most."""
        layout = self.passes.layout
        stream, last = Stream(self.seed, index, phase), min(count, layout.block, layout.chunk)
        return self.passes.drawn(Block(self.voter(index, x, noise).copies, stream, 0, 0, last))


def held_row(name: str, x: NDArray[Any], held: NDArray[np.bool_], dtype: str) -> torch.Tensor:
    """A whole row, flat, with the values that are held, exactly: nothing is said of how the model moves with them.

    Equal values are the same function: −0 is given to the model as 0.
    """
    values = x[held]
    if not (exact := exact_in(values, np.float64)).all():
        raise InvalidValueError(
            f"a value that is held, {values[~exact][0]!s}, isn't exact in float64, in which the model would get it: "
            "hold it in a column of a table, or subtract an offset"
        )
    row = np.where(held, np.asarray(x, dtype=np.float64), 0.0) + 0.0
    with np.errstate(over="ignore"):
        given = row.astype(dtype)
    if not np.isfinite(given).all():
        raise ModelError(
            f"{name}: a value that is held, {row[~np.isfinite(given)][0]:g}, is too large for {dtype}; use float64 "
            "(--dtype float64)"
        )
    if not (same := given.astype(np.float64) == row).all():
        raise ModelError(
            f"{name}: a value that is held, {row[~same][0].item()!r}, isn't exact in {dtype}, and the model would get "
            'another one: use float64 (Numerics("float64"), --dtype float64), or round it yourself '
            "(x.astype(np.float32))"
        )
    return torch.from_numpy(given.reshape(-1))


def exact_in(values: NDArray[Any], kind: type[np.float32] | type[np.float64]) -> NDArray[np.bool_]:
    """Which of these numbers the type has."""
    with np.errstate(over="ignore"):
        near = values.astype(kind)
    if values.dtype.kind == "f":
        return np.asarray(near == values)  # compared in the finer type
    digits = np.finfo(kind).nmant + 1
    if not values.size or -(1 << digits) <= int(values.min()) <= int(values.max()) <= 1 << digits:
        return np.ones(values.shape, dtype=bool)
    # Python's whole numbers: NumPy would compare after rounding.
    same = [int(a) == b for a, b in zip(near.ravel().tolist(), values.ravel().tolist())]
    return np.array(same).reshape(values.shape)
