"""Passes on the device: a task is launched as a whole, and its counts come back in one read.

Launching takes nothing from the device but the answer's shape: while one task is under way the next can be launched.
A vote's noise follows from its stream and its number in it (:mod:`smoothcert.sampling.device.philox`), so what is drawn
together doesn't matter; passes have the layout of the plan, as everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise.sampler import CellSampler
from smoothcert.sampling.device.cells import DeviceCells
from smoothcert.sampling.device.counting import DeviceCounts
from smoothcert.sampling.device.fused import bits_on
from smoothcert.sampling.device.philox import MOST_VOTES, check_known_answers, stream_key
from smoothcert.sampling.device.transfers import Arrival, Transfers, sent
from smoothcert.sampling.failures import failure, naming
from smoothcert.sampling.lanes import Block, Round, Task, blocks_of, timed
from smoothcert.sampling.models.copies import Lending
from smoothcert.sampling.models.prepared import Prepared, check_answers
from smoothcert.sampling.streams import NoisyCopies

# Numbers whose words are computed together, in whole rows: what stays in a cache, or keeps an accelerator busy
_TOGETHER = {"cpu": 1 << 15}
_TOGETHER_ELSEWHERE = 1 << 22


@dataclass(frozen=True)
class _Part:
    """Rows of a pass that a block has: from its row ``start`` on. Only ``wanted`` ones are counted."""

    block: Block
    place: int
    """The block's among those of the task."""
    start: int
    wanted: range


@dataclass(frozen=True)
class _Rows:
    """What is to be known of every row of a pass, on the device."""

    keys: Tensor
    """The four words of its stream."""
    votes: Tensor
    """Its number in the stream."""
    owner: Tensor
    """The place of its block in the task."""
    inputs: Tensor
    """The place of its input."""
    wanted: Tensor
    """1 where it is counted, else 0."""

    @classmethod
    def of(cls, parts: Tensor, size: int) -> _Rows:
        """From what is known of its parts, of ``size`` rows each."""
        place = torch.arange(size, device=parts.device)
        told = parts.unsqueeze(1).expand(-1, size, -1)
        wanted = (place >= told[..., 7]) & (place < told[..., 8])
        columns = told[..., :4], told[..., 4] + place, told[..., 5], told[..., 6], wanted.to(torch.int64)
        return cls(*(column.flatten(0, 1) for column in columns))


class _Bench:
    """What a worker keeps on the device: samplers' tables and grid points of inputs."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tables: WeakKeyDictionary[CellSampler, tuple[DeviceCells, Tensor]] = WeakKeyDictionary()
        self._steps: WeakKeyDictionary[NoisyCopies, Tensor] = WeakKeyDictionary()

    def tables(self, copies: NoisyCopies) -> tuple[DeviceCells, Tensor]:
        """The cells, and the divisor, which must lie on the device: torch would multiply by a host's reciprocal."""
        sampler = copies.noise.sampler
        found = self._tables.get(sampler)
        if found is None:
            divisor = sent(copies.divisor.reshape(1, -1).numpy(), self._device)
            found = self._tables[sampler] = DeviceCells(sampler, self._device), divisor
        return found

    def steps(self, copies: NoisyCopies) -> Tensor:
        """A grid point."""
        found = self._steps.get(copies)
        if found is None:
            found = self._steps[copies] = sent(copies.steps.reshape(-1).numpy(), self._device)
        return found


@dataclass(frozen=True)
class Pending:
    """A task that was launched."""

    blocks: Sequence[Block]
    counts: DeviceCounts
    arrival: Arrival
    began: float
    purpose: str

    def collect(self, since: float = 0.0) -> list[tuple[NDArray[np.int64], float]]:
        """The sums of each block and the seconds it took, of those after ``since``; waits for the device."""

        def named(places: Sequence[int], reason: str) -> ModelError:
            return failure(self.purpose, [self.blocks[place].index for place in places], reason)

        sums = self.counts.read(self.arrival.wait(), named)
        return timed(self.blocks, sums, time.perf_counter() - max(self.began, since))


class DevicePasses:
    """Casts the votes of tasks on the device that a model was prepared for."""

    def __init__(self, prepared: Prepared, votes: VoteKind, purpose: str) -> None:
        self.prepared, self.votes, self.purpose = prepared, votes, purpose
        self.layout = prepared.numerics.layout()
        self.transfers = Transfers()
        self._size = math.prod(prepared.input_shape)
        together = _TOGETHER.get(torch.device(prepared.device).type, _TOGETHER_ELSEWHERE)
        self._together = min(max(1, together // self._size), self.layout.chunk)
        self._benches = Lending(lambda: _Bench(prepared.device))
        check_known_answers(prepared.device)
        counts = {self._together, self.layout.chunk % self._together} - {0}
        with torch.inference_mode(), self._current():
            self._uniform_bits = bits_on(prepared.device, counts, self._size)

    def launch(self, task: Task) -> Pending:
        """Draw, show and count a task's votes; nothing is waited for."""
        began, blocks, prepared = time.perf_counter(), blocks_of(task), self.prepared
        self._check_numbers(blocks)
        passes = list(self._passes(task))
        with torch.inference_mode(), self._current(), self._benches.borrowed() as bench:
            inputs = {id(block.copies): block.copies for block in blocks}
            places = {key: place for place, key in enumerate(inputs)}
            steps = torch.stack([bench.steps(copies) for copies in inputs.values()])
            told = self._told(passes, places)
            counts = DeviceCounts(
                len(blocks),
                prepared.kind,
                prepared.classes,
                self.votes,
                prepared.order,
                prepared.device,
            )
            for parts, one in zip(passes, told):
                rows = _Rows.of(one, self.layout.chunk // len(parts))
                indices = [part.block.index for part in parts]
                with naming(self.purpose, indices):
                    drawn = self._draw(bench, parts, rows, steps)
                    with prepared.base.turn(), prepared.lending.borrowed() as model:
                        answers = model(drawn.view(-1, *prepared.input_shape))
                        check_answers(prepared.name, answers, self.layout.chunk)
                        counts.add(answers.detach(), rows.owner, rows.wanted)
            arrival = self.transfers.fetch(counts.held)
        return Pending(blocks, counts, arrival, began, self.purpose)

    def drawn(self, block: Block) -> NDArray[np.float64]:
        """The noisy copies of a block from its first on, within a pass, as the model sees them."""
        parts = [_Part(block, 0, 0, range(block.first, block.last))]
        with torch.inference_mode(), self._current(), self._benches.borrowed() as bench:
            (told,) = self._told([parts], {id(block.copies): 0})
            rows = _Rows.of(told, self.layout.chunk)
            drawn = self._draw(bench, parts, rows, bench.steps(block.copies).unsqueeze(0))
            shown = self.transfers.fetch(drawn[block.wanted]).wait()
        return np.array(shown, dtype=np.float64).reshape(-1, *self.prepared.input_shape)

    def _passes(self, task: Task) -> Iterator[list[_Part]]:
        """What each pass holds: blocks of several inputs, or a part of one block."""
        place = 0
        for one in task:
            if self.layout.passes == 1:
                yield self._shared(one, place)
            else:
                for offset, block in enumerate(blocks_of([one])):
                    yield from self._long(block, place + offset)
            place += len(blocks_of([one]))

    def _shared(self, one: Round, place: int) -> list[_Part]:
        """An empty slot repeats a real block, as zeros might trip the model, and none of it is counted."""
        filled = blocks_of([one])
        parts, behind = [], 0
        for block in one:
            if block is None:
                parts.append(_Part(filled[0], place, 0, range(0)))
            else:
                parts.append(_Part(block, place + behind, 0, range(block.first, block.last)))
                behind += 1
        return parts

    def _long(self, block: Block, place: int) -> Iterator[list[_Part]]:
        chunk = self.layout.chunk
        for start in range(block.first - block.first % chunk, block.last, chunk):
            wanted = range(max(block.first - start, 0), min(block.last - start, chunk))
            yield [_Part(block, place, start, wanted)]

    def _told(self, passes: Sequence[Sequence[_Part]], places: dict[int, int]) -> Tensor:
        """What the device must know of the parts of every pass, sent in one piece: see :class:`_Rows`."""
        told = np.array(
            [
                [
                    (
                        *stream_key(part.block.stream),
                        part.block.number * self.layout.block + part.start,
                        part.place,
                        places[id(part.block.copies)],
                        part.wanted.start,
                        part.wanted.stop,
                    )
                    for part in one
                ]
                for one in passes
            ],
            dtype=np.int64,
        )
        return sent(told, self.prepared.device)

    def _draw(self, bench: _Bench, parts: Sequence[_Part], rows: _Rows, steps: Tensor) -> Tensor:
        """The rows of a pass, as :meth:`NoisyCopies.draw` draws them: whole numbers are added exactly.

        In memory of their own, since a model may keep what it was shown, and write to it when it likes.
        """
        kind = self.prepared.numerics.noise_dtype()
        room = torch.empty((self.layout.chunk, self._size), dtype=kind, device=self.prepared.device)
        size, half = self.layout.chunk // len(parts), -(-self._size // 2)
        runs, end = [], 0
        for _, alike in groupby((part.block.copies for part in parts), attrgetter("noise.sampler")):
            begin, copies = end, list(alike)
            end += len(copies) * size
            runs.append((begin, end, *bench.tables(copies[0])))
        for first in range(0, self.layout.chunk, self._together):
            last = min(first + self._together, self.layout.chunk)
            together = slice(first, last)
            lower, upper = self._uniform_bits(rows.keys[together], rows.votes[together], self._size)
            points = steps.index_select(0, rows.inputs[together])
            for begin, end, cells, divisor in runs:
                own = slice(max(begin - first, 0), min(end, last) - first)
                if own.start >= own.stop:
                    continue
                out = room[first:last][own]
                out[:, :half] = cells.steps(lower[own], slice(0, half))
                out[:, half:] = cells.steps(upper[own], slice(half, self._size))
                out.add_(points[own]).div_(divisor)
        return room

    def _current(self) -> AbstractContextManager[object]:
        """Compiled models are launched on the thread's current device, whatever their tensors' is."""
        device = self.prepared.device
        return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()

    def _check_numbers(self, blocks: Sequence[Block]) -> None:
        last = max((block.number * self.layout.block + block.last for block in blocks), default=0)
        if last > MOST_VOTES:
            raise InvalidValueError(
                f"the philox generator numbers {MOST_VOTES} votes of an input, got {last}: use --generator sfc64"
            )
