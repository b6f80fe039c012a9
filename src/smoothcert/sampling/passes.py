"""Noisy passes: rows are filled with noise, padded to one shape, shown to the model in worker threads and counted.

Every pass has the same shape and every worker one OpenMP thread, because float32 kernels may round differently for
another number of rows or threads; a block sits in the same slot of a pass whatever its neighbours.
So certify, predict, searches, fits and attacks get the same bits for any batch and number of workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.sampling.ballots import Ballots, read_ballots
from smoothcert.sampling.device import DevicePasses
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.failures import naming
from smoothcert.sampling.lanes import Block, Task, blocks_of, timed
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.models.prepared import Prepared
from smoothcert.sampling.numerics import PHILOX
from smoothcert.sampling.streams import BlockBits
from smoothcert.sampling.threads import Workers

_NUMBERS_TOGETHER = 1 << 18  # of noise, about; which numbers a block is made of depends on it


class Rows(Protocol):
    """Noisy copies of an input that sit together in a slot of a pass."""

    @property
    def index(self) -> int:
        """The input's."""

    @property
    def wanted(self) -> slice:
        """Rows of the slot that are asked about; the others are padding."""

    def fill(self, out: torch.Tensor, bits: BlockBits, /) -> None:
        """Write every row of the slot; rows that aren't asked about repeat a real one."""


P = TypeVar("P", bound=Rows)


class Passes(Workers):
    """A prepared model, and the worker threads that show it noisy rows."""

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
        self.on_device = (
            DevicePasses(prepared, votes, purpose) if prepared.numerics.generator == PHILOX else None
        )
        self._bits = Lending(BlockBits)
        # Of small inputs several passes are drawn at once: after a pass the sampler's tables have left the cache.
        together = max(1, _NUMBERS_TOGETHER // (self.layout.chunk * math.prod(prepared.input_shape)))
        self._drawn_together = self.layout.chunk * min(self.layout.passes, together)

    def tensor(self, index: int, x: NDArray[np.generic]) -> torch.Tensor:
        """An input in the type of its noise, checked before anything is spent on it."""
        row = np.array(checked_input(index, x, self.prepared.input_shape), dtype=np.float64)
        return torch.from_numpy(row).to(self.dtype)

    def cast(self, slots: Sequence[P | None]) -> list[tuple[P, Ballots]]:
        """What each of equal slots wanted of one pass, but for the empty ones; called in a worker."""
        filled = [(slot, rows) for slot, rows in enumerate(slots) if rows is not None]
        size = self.layout.chunk // len(slots)
        with torch.inference_mode(), self._bits.borrowed() as bits, self._naming(filled):
            buffer = self._room(self.layout.chunk).view(len(slots), size, *self.prepared.input_shape)
            for slot, rows in filled:
                rows.fill(buffer[slot], bits)
            for slot in (slot for slot, rows in enumerate(slots) if rows is None):
                buffer[slot] = buffer[filled[0][0]]  # a real input, as zeros might trip the model
            ballots = self._read(self.prepared.outputs(buffer.flatten(0, 1)))
        return [(rows, ballots.part(slot * size, rows.wanted)) for slot, rows in filled]

    def labels(self, pool: ThreadPoolExecutor, rows: torch.Tensor) -> NDArray[np.int64]:
        """The votes on rows that are noisy already."""

        def labels(part: torch.Tensor) -> NDArray[np.int64]:
            with torch.inference_mode(), naming(self.purpose, [0]):
                return self._read(self.prepared.outputs_of(part.to(self.dtype))).labels

        return np.concatenate(list(pool.map(labels, torch.split(rows, self.layout.chunk))))

    def cast_long(self, blocks: Sequence[Block]) -> list[tuple[Block, Ballots]]:
        """The votes of blocks of several passes, noise being drawn for several of them at a time and votes read once.

        What is drawn together doesn't depend on the votes asked for: a vote is always the same draw. Passes that hold
        none of them are drawn, but not shown to the model.
        """
        chunk = self.layout.chunk
        outputs: list[torch.Tensor] = []
        parts: list[tuple[int, Block]] = []
        with torch.inference_mode(), self._bits.borrowed() as bits:
            for block in blocks:
                begun = block.first - block.first % chunk
                parts.append((len(outputs) * chunk - begun, block))
                with self._naming([(0, block)]):
                    state = bits.seek(block.stream, block.number)
                    for start in range(0, block.last, self._drawn_together):
                        rows = self._room(min(self._drawn_together, self.layout.block - start))
                        block.copies.draw(rows, state)
                        needed = range(max(0, begun - start), min(len(rows), block.last - start), chunk)
                        outputs += self.prepared.outputs_each(rows[first : first + chunk] for first in needed)
            with self._naming(parts):
                ballots = self._read_all(outputs)
        return [(block, ballots.part(origin, block.wanted)) for origin, block in parts]

    def drawn(self, block: Block) -> NDArray[np.float64]:
        """The noisy copies of a block, as the model sees them; no vote is cast."""
        if self.on_device is not None:
            return self.on_device.drawn(block)
        with torch.inference_mode(), self._bits.borrowed() as bits:
            # As many as are drawn together when votes are cast.
            rows = self._room(min(self._drawn_together, self.layout.block))
            block.fill(rows, bits)
            return np.array(rows[block.wanted].numpy(), dtype=np.float64)

    def cast_task(self, task: Task) -> list[tuple[NDArray[np.int64], float]]:
        """The sums of each block of a task, in the order of :func:`blocks_of`, and the seconds it took."""
        if self.on_device is not None:
            return self.on_device.launch(task).collect()
        began = time.perf_counter()
        if self.layout.passes == 1:
            cast = [ballots for blocks in task for _, ballots in self.cast(blocks)]
        else:
            cast = [ballots for _, ballots in self.cast_long(blocks_of(task))]
        sums = [ballots.sums(self.prepared.classes) for ballots in cast]
        return timed(blocks_of(task), sums, time.perf_counter() - began)

    def _read(self, outputs: torch.Tensor) -> Ballots:
        return read_ballots(outputs, self.prepared.kind, self.prepared.classes, self.votes)

    def _read_all(self, passes: Sequence[torch.Tensor]) -> Ballots:
        """Read at once where that changes no number: passes of several types would be joined in one of them."""
        if len({(answers.dtype, answers.shape[1:]) for answers in passes}) == 1:
            return self._read(torch.cat(list(passes)))
        return Ballots.joined([self._read(answers) for answers in passes])

    def _naming(self, filled: Sequence[tuple[int, Rows]]) -> AbstractContextManager[None]:
        """Whatever goes wrong in a pass is reported with the inputs in it."""
        return naming(self.purpose, [rows.index for _, rows in filled])

    def _room(self, rows: int) -> torch.Tensor:
        """For rows to be drawn into: new, since a model may keep what it was shown, and write to it when it likes."""
        return torch.empty((rows, *self.prepared.input_shape), dtype=self.dtype)


def checked_input(index: int, x: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """An input as an array; refused unless it has this shape and holds finite real numbers."""
    found = np.asarray(x)
    if found.shape != shape:
        raise InvalidValueError(f"input {index} has shape {found.shape}, the model was prepared for {shape}")
    if found.dtype.kind not in "biuf":
        raise InvalidValueError(f"input {index} must hold real numbers, got dtype {found.dtype}")
    if not np.isfinite(found).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise InvalidValueError(
            f"input {index} holds {found[where]} at position {where}; inputs must be finite"
        )
    return found
