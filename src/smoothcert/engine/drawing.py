"""Drawing: the noisy rows of passes, by SFC64 on the host or by Philox where the model is.

The plan's ``generator`` decides which: with ``philox`` noise is drawn on the model's device, an accelerator or the CPU,
and nothing is read from it. There a vote's noise follows from its stream and its number in it
(:mod:`smoothcert.engine.philox`), so what is drawn together doesn't matter; by SFC64 a block has one random state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.engine.philox import MOST_VOTES, DeviceCells, bits_on, check_known_answers, stream_key
from smoothcert.engine.schedule import Block, BlockBits, Task, blocks_of
from smoothcert.errors import InvalidValueError
from smoothcert.models.base import Prepared
from smoothcert.models.capture import Lending
from smoothcert.perturb.grid import HeldCopies, NoisyCopies
from smoothcert.perturb.sampler import CellSampler
from smoothcert.tally import NUMBERS_TOGETHER

_AHEAD = 1 << 21
"""Numbers drawn before the model sees the first of them: after a pass, tables and code have left the caches."""

# Numbers whose words are computed together, in whole rows: what stays in a cache, or keeps an accelerator busy
_TOGETHER = {"cpu": 1 << 15}
_TOGETHER_ELSEWHERE = 1 << 22


class Rows(Protocol):
    """Noisy copies of an input that sit together in a slot of a pass."""

    @property
    def index(self) -> int:
        """The input's."""

    @property
    def wanted(self) -> slice:
        """Rows of the slot that are asked about; the others are padding."""

    def fill(self, out: Tensor, bits: BlockBits, /) -> None:
        """Write every row of the slot; rows that aren't asked about repeat a real one."""


class Part(NamedTuple):
    """Rows of a pass that a block has, from its row ``start`` on."""

    place: int
    """The block's among those of the task."""
    first: int
    """Of the part's rows that are counted."""
    last: int
    """The first behind them."""
    start: int
    block: Block


def passes_of(task: Task, chunk: int) -> list[list[list[Part]]]:
    """What each pass of ``chunk`` rows of each round holds: blocks of several inputs, or a part of one block.

    An empty slot repeats a real block, as zeros might trip the model, and none of it is counted.
    """
    found, place = [], 0
    for one in task:
        filler = next(block for block in one if block is not None)
        if filler.last <= chunk:
            parts, behind = [], place
            for block in one:
                if block is None:
                    parts.append(Part(place, 0, 0, 0, filler))
                else:
                    parts.append(Part(behind, block.first, block.last, 0, block))
                    behind += 1
            found.append([parts])
            place = behind
        else:
            found.append(
                [
                    [
                        Part(
                            place,
                            max(filler.first - start, 0),
                            min(filler.last - start, chunk),
                            start,
                            filler,
                        )
                    ]
                    for start in range(filler.first // chunk * chunk, filler.last, chunk)
                ]
            )
            place += 1
    return found


def passes_ahead(chunk: int, shape: tuple[int, ...]) -> int:
    """Passes of ``chunk`` rows that are drawn, and counted, together."""
    return max(1, _AHEAD // (chunk * math.prod(shape)))


class HostDrawing:
    """Blocks as :meth:`Copies.draw` draws them, each from a random state of its own.

    Like all rows, in new memory: a model may keep what it was shown, and write to it when it likes.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._shape, self._dtype = prepared.input_shape, prepared.numerics.noise_dtype()
        self._layout = prepared.numerics.layout()
        self._bits = Lending(BlockBits)

    def rows(self, task: Task, _passes: Sequence[Sequence[Part]], /) -> Iterator[Tensor]:
        """A batch for each pass of a task, several being drawn at a time."""
        drawn, ahead = self._drawn(task), passes_ahead(self._layout.chunk, self._shape)
        while batches := list(islice(drawn, ahead)):
            yield from batches

    def _drawn(self, task: Task) -> Iterator[Tensor]:
        for one in task:
            if self._layout.passes == 1:
                yield self.filled(one)
            else:
                for block in blocks_of([one]):
                    yield from self._long(block)

    def filled(self, slots: Sequence[Rows | None]) -> Tensor:
        """A pass of equal slots."""
        chunk = self._layout.chunk
        batch = self._room(chunk)
        room = batch.view(len(slots), chunk // len(slots), *self._shape).unbind()
        filled = [(slot, rows) for slot, rows in enumerate(slots) if rows is not None]
        with self._bits.borrowed() as bits:
            for slot, rows in filled:
                rows.fill(room[slot], bits)
        for slot in (slot for slot, rows in enumerate(slots) if rows is None):
            room[slot].copy_(room[filled[0][0]])  # a real input, as zeros might trip the model
        return batch

    def _long(self, block: Block) -> Iterator[Tensor]:
        """The passes of a block that hold votes asked for, noise being drawn for several passes at a time.

        What is drawn together doesn't depend on the votes asked for: a vote is always the same draw.
        """
        chunk, begun = self._layout.chunk, block.first - block.first % self._layout.chunk
        passes = max(1, NUMBERS_TOGETHER // (chunk * block.copies.dimension))
        together = chunk * min(self._layout.passes, passes)
        with self._bits.borrowed() as bits:
            state = bits.seek(block.stream, block.number)
            for start in range(0, block.last, together):
                rows = self._room(min(together, self._layout.block - start))
                block.copies.draw(rows, state)
                for first in range(max(0, begun - start), min(len(rows), block.last - start), chunk):
                    yield rows[first : first + chunk]

    def _room(self, rows: int) -> Tensor:
        return torch.empty((rows, *self._shape), dtype=self._dtype)


class DeviceDrawing:
    """Rows drawn on the device that a model was prepared for: launched, and not waited for."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._device, self._layout = prepared, prepared.device, prepared.numerics.layout()
        size = math.prod(prepared.input_shape)
        together = _TOGETHER.get(torch.device(prepared.device).type, _TOGETHER_ELSEWHERE)
        self._together = min(max(1, together // size), self._layout.chunk)
        self._tables = Lending(lambda: _Tables(prepared.device))
        check_known_answers(prepared.device)
        counts = {self._together, self._layout.chunk % self._together} - {0}
        with torch.inference_mode():
            self._uniform_bits = bits_on(prepared.device, counts, size)

    def rows(self, task: Task, passes: Sequence[Sequence[Part]], /) -> Iterator[Tensor]:
        """A batch for each pass of a task; refuses at once what can't be drawn."""
        blocks = blocks_of(task)
        last = max((block.number * self._layout.block + block.last for block in blocks), default=0)
        if last > MOST_VOTES:
            raise InvalidValueError(
                f"the philox generator numbers {MOST_VOTES} votes of an input, got {last}: use --generator sfc64"
            )
        return self._rows({id(block.copies): _on_grid(block) for block in blocks}, passes)

    def _rows(self, inputs: dict[int, NoisyCopies], passes: Sequence[Sequence[Part]]) -> Iterator[Tensor]:
        places = {key: place for place, key in enumerate(inputs)}
        with self._tables.borrowed() as tables:
            steps = torch.stack([tables.steps(copies) for copies in inputs.values()])
            told = [
                [
                    (
                        *stream_key(part.block.stream),
                        part.block.number * self._layout.block + part.start,
                        places[id(part.block.copies)],
                    )
                    for part in parts
                ]
                for parts in passes
            ]
            for parts, one in zip(passes, sent(np.array(told, dtype=np.int64), self._device)):
                drawn = self._drawn(tables, parts, one, steps)
                yield self._framed(parts, drawn).view(-1, *self._prepared.input_shape)

    def _drawn(self, tables: _Tables, parts: Sequence[Part], told: Tensor, steps: Tensor) -> Tensor:
        """The rows of a pass, as :meth:`NoisyCopies.draw` draws them: whole numbers are added exactly.

        ``told`` has, for each part, the four words of its stream, its first row's number in it, and its input's place
        in ``steps``.
        """
        chunk, kind = self._layout.chunk, self._prepared.numerics.noise_dtype()
        size, numbers = chunk // len(parts), _on_grid(parts[0].block).dimension
        half = -(-numbers // 2)
        room = torch.empty((chunk, numbers), dtype=kind, device=self._device)
        each = told.unsqueeze(1).expand(-1, size, -1)
        keys, inputs = each[..., :4].flatten(0, 1), each[..., 5].flatten()
        votes = (each[..., 4] + torch.arange(size, device=self._device)).flatten()
        runs, end = [], 0
        for _, alike in itertools.groupby(
            (_on_grid(part.block) for part in parts), attrgetter("noise.sampler")
        ):
            begin, copies = end, list(alike)
            end += len(copies) * size
            runs.append((begin, end, *tables.of(copies[0])))
        for first in range(0, chunk, self._together):
            last = min(first + self._together, chunk)
            lower, upper = self._uniform_bits(keys[first:last], votes[first:last], numbers)
            points = steps.index_select(0, inputs[first:last])
            for begin, end, cells, divisor in runs:
                own = slice(max(begin - first, 0), min(end, last) - first)
                if own.start >= own.stop:
                    continue
                out = room[first:last][own]
                out[:, :half] = cells.steps(lower[own], slice(0, half))
                out[:, half:] = cells.steps(upper[own], slice(half, numbers))
                out.add_(points[own]).div_(divisor)
        return room

    def _framed(self, parts: Sequence[Part], drawn: Tensor) -> Tensor:
        """Whole rows, where some of their coordinates are held."""
        if not isinstance(parts[0].block.copies, HeldCopies):
            return drawn
        size = self._layout.chunk // len(parts)
        framed = [part.block.copies for part in parts if isinstance(part.block.copies, HeldCopies)]
        whole = [
            replace(copies, row=copies.row.to(self._device), free=copies.free.to(self._device)).whole(own)
            for copies, own in zip(framed, torch.split(drawn, size), strict=True)
        ]
        return torch.cat(whole)


class _Tables:
    """What a worker keeps on the device: samplers' tables and grid points of inputs."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tables: WeakKeyDictionary[CellSampler, tuple[DeviceCells, Tensor]] = WeakKeyDictionary()
        self._steps: WeakKeyDictionary[NoisyCopies, Tensor] = WeakKeyDictionary()

    def of(self, copies: NoisyCopies) -> tuple[DeviceCells, Tensor]:
        """The cells, and the divisor, which must lie on the device: torch would multiply by a host's reciprocal."""
        sampler = copies.noise.sampler
        if sampler not in self._tables:
            divisor = sent(copies.divisor.reshape(1, -1).numpy(), self._device)
            self._tables[sampler] = DeviceCells(sampler, self._device), divisor
        return self._tables[sampler]

    def steps(self, copies: NoisyCopies) -> Tensor:
        """A grid point."""
        if copies not in self._steps:
            self._steps[copies] = sent(copies.steps.reshape(-1).numpy(), self._device)
        return self._steps[copies]


def _on_grid(block: Block) -> NoisyCopies:
    """The block's copies; refused where they aren't whole steps of a grid, which is all that is drawn on a device."""
    copies = block.copies.copies if isinstance(block.copies, HeldCopies) else block.copies
    if isinstance(copies, NoisyCopies):
        return copies
    raise InvalidValueError("the philox generator draws noise on a grid alone: use --generator sfc64")


@dataclass(frozen=True)
class Arrival:
    """Numbers on their way to the host."""

    host: Tensor
    event: torch.cuda.Event | None = None

    def wait(self) -> NDArray[np.int64]:
        """The numbers, once they are there: the one place that waits for the device."""
        if self.event is not None:
            self.event.synchronize()
        found: NDArray[np.int64] = self.host.numpy()
        return found


class Transfers:
    """The only way from a device back to the host, so that whatever waits for a device is counted."""

    def __init__(self) -> None:
        self.reads = 0

    def fetch(self, numbers: Tensor) -> Arrival:
        """Begin to read; on CUDA into pinned memory, without waiting yet."""
        self.reads += 1
        if numbers.device.type != "cuda":
            return Arrival(numbers.cpu())
        host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        host.copy_(numbers, non_blocking=True)
        # Blocking: a thread that waits leaves its core to those that prepare the next task.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(numbers.device))
        return Arrival(host, event)


def sent(array: NDArray[np.generic], device: str) -> Tensor:
    """An array on its way to the device; on CUDA from pinned memory, without waiting."""
    host = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
