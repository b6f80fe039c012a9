"""Workers: threads that draw noise, ask the model and count votes, each with one small buffer of its own."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import Ballots, read_ballots
from smoothcert.sampling.lanes import Block, Place, Round
from smoothcert.sampling.models.base import Prepared
from smoothcert.sampling.streams import BlockBits
from smoothcert.sampling.threads import one_openmp_thread

_NUMBERS_TOGETHER = 1 << 18  # of noise, about; which numbers a block is made of depends on it


@dataclass(frozen=True)
class Cast:
    """What became of one block: its sums (counts; for soft votes also probabilities and squares)."""

    block: Block
    sums: NDArray[np.int64]
    seconds: float


class Workers:
    """A pool that turns tasks (lists of rounds) into casts, in whatever order they are done."""

    def __init__(self, prepared: Prepared, votes: VoteKind) -> None:
        self.prepared = prepared
        self.votes: VoteKind = votes
        self._layout = prepared.numerics.layout()
        self._tasks: queue.SimpleQueue[list[Round] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[list[Cast] | BaseException] = queue.SimpleQueue()

    def give(self, task: list[Round]) -> None:
        """Queue a task for the next free worker."""
        self._tasks.put(task)

    def take(self) -> list[Cast]:
        """Wait for a finished task; an error in a worker is raised here."""
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    @contextmanager
    def running(self, count: int) -> Iterator[None]:
        """Keep ``count`` workers at work; on leaving, tasks not begun are dropped and every thread has ended."""
        with one_openmp_thread():
            threads = [
                threading.Thread(target=self._work, daemon=True, name=f"votes-{i}") for i in range(count)
            ]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                while not self._tasks.empty():
                    self._tasks.get_nowait()
                for _ in threads:
                    self._tasks.put(None)
                for thread in threads:
                    thread.join()

    def _work(self) -> None:
        bits = BlockBits()
        layout = self._layout
        shape = (layout.slots, self._rows_drawn_together(), *self.prepared.input_shape)
        with torch.inference_mode():
            buffer = torch.zeros(shape, dtype=self.prepared.numerics.noise_dtype())
            while (task := self._tasks.get()) is not None:
                try:
                    self._results.put([cast for one in task for cast in self._cast(one, buffer, bits)])
                except BaseException as error:  # carried to the caller's thread, which raises it
                    self._results.put(error)

    def _rows_drawn_together(self) -> int:
        """Of small inputs several passes: after a pass the sampler's tables have left the cache."""
        layout = self._layout
        if layout.passes == 1:
            return layout.block
        together = max(1, _NUMBERS_TOGETHER // (layout.chunk * math.prod(self.prepared.input_shape)))
        return layout.chunk * min(layout.passes, together)

    def _cast(self, one: Round, buffer: torch.Tensor, bits: BlockBits) -> list[Cast]:
        """One round: draw each block's noise, add its input, ask the model, count the votes."""
        began = time.perf_counter()
        filled = [(slot, block) for slot, block in enumerate(one) if block is not None]
        try:
            if self._layout.passes == 1:
                outputs = self._one_pass(one, buffer, bits)
            else:
                outputs = self._several_passes(filled[0][1], buffer[0], bits)
            ballots = read_ballots(outputs, self.prepared.kind, self.prepared.classes, self.votes)
        except Exception as error:
            indices = sorted({block.place.job.index for _, block in filled})
            which = f"input {indices[0]}" if len(indices) == 1 else f"one of the inputs {indices}"
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            raise ModelError(f"voting on {which}: {reason}") from error
        counted = [(block, self._count(ballots, slot, block)) for slot, block in filled]
        share = (time.perf_counter() - began) / len(filled)
        return [Cast(block, sums, share) for block, sums in counted]

    def _one_pass(self, one: Round, buffer: torch.Tensor, bits: BlockBits) -> torch.Tensor:
        """Every block of the round in one pass, always of the same shape."""
        for slot, block in enumerate(one):
            if block is not None:
                _fill(buffer[slot], block.place, bits.seek(block.stream, block.number))
        used = next(slot for slot, block in enumerate(one) if block is not None)
        for slot in (slot for slot, block in enumerate(one) if block is None):
            buffer[slot] = buffer[used]  # so that what nobody asked about can't fail the model's checks
        return self.prepared.outputs(buffer.flatten(0, 1))

    def _several_passes(self, block: Block, buffer: torch.Tensor, bits: BlockBits) -> torch.Tensor:
        """One block in as many passes as its votes need, noise being drawn for several of them at a time.

        What is drawn together doesn't depend on how many votes are needed: a vote is always the same draw.
        """
        layout, state = self._layout, bits.seek(block.stream, block.number)
        outputs: list[torch.Tensor] = []
        for start in range(0, block.last, len(buffer)):
            rows = buffer[: layout.block - start]
            _fill(rows, block.place, state)
            needed = range(0, min(len(rows), block.last - start), layout.chunk)
            outputs += [self.prepared.outputs(rows[first : first + layout.chunk]) for first in needed]
        return torch.cat(outputs)

    def _count(self, ballots: Ballots, slot: int, block: Block) -> NDArray[np.int64]:
        rows = slice(slot * self._layout.block + block.first, slot * self._layout.block + block.last)
        counts = np.bincount(ballots.labels[rows], minlength=self.prepared.classes)
        if ballots.probabilities is None or ballots.squares is None:
            return counts[np.newaxis]
        return np.stack([counts, ballots.probabilities[rows].sum(0), ballots.squares[rows].sum(0)])


def _fill(out: torch.Tensor, place: Place, bits: np.random.SFC64) -> None:
    """Noisy copies of an input: sums of whole numbers are exact, and dividing them is a part of the classifier."""
    place.sampler.draw(out.numpy(), bits)
    out.add_(place.steps).div_(place.divisor)
