"""The check of a model on the rows of the run itself: noisy copies of the inputs given, in other company and alone.

A vote must be a function of its row. So rows of the inputs at hand are evaluated several times, in passes of the shape
that votes are cast in: again, at other places among a crowd of one repeated row, alone (the row repeated through the
whole pass), and by several threads at once. Votes that were counted are cast again by the caller, each in its slot but
beside others, whichever worker cast them. All of it comes from a stream of its own: no vote changes.

What it shows: if a vote changes in freshly drawn company with probability q, k such companies miss it with probability
(1 − q)ᵏ.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.sampling.failures import naming
from smoothcert.sampling.lanes import Block
from smoothcert.sampling.models.probes import Probe, check_again, check_together, differing_rows
from smoothcert.sampling.numerics import Layout
from smoothcert.sampling.streams import BlockBits, NoisyCopies
from smoothcert.tally import Phase, Stream

if TYPE_CHECKING:
    from smoothcert.sampling.passes import Passes

FIRST_INPUTS = 8
"""Inputs that are checked before any vote is cast."""

_EVERY = 64  # rows of votes that pay for one of a check: below 2 %
_PASSES = 4  # of a check: the rows, in a crowd, alone, and what a tie may need
_MOST_POOLED = 256  # inputs that wait for a check; more of them don't wait for the votes
_KEPT = 8  # rounds of votes kept to be cast again, the first of the run among them
_ROUNDS_AGAIN = 2  # cast again in a check
_TIES = 200  # of so many rows one label may go by its place, where the row alone confirms it
_ALONE = 4  # rows shown alone in the opening check
_VOTES_OF_DEVICES = 1000  # of so many votes a device that doesn't give the same bits twice may change one


@dataclass(frozen=True)
class CheckedInput:
    """An input whose noisy copies are looked at."""

    index: int
    copies: NoisyCopies


class RowCheck:
    """What is known of one prepared model: whether its opening check is done, and what has come since.

    Calls pool their inputs here, so that many small ones (a service's) share a check.
    """

    def __init__(self) -> None:
        self.opening: Tensor | None = None
        """The rows of the opening check, which workers elsewhere must answer alike."""
        self._lock = threading.Lock()
        self._pool: list[CheckedInput] = []
        self._last: list[CheckedInput] = []
        self._owed = 0.0
        self._drawn = 0

    def __reduce__(self) -> Any:
        """What was seen in one process says nothing of another."""
        return RowCheck, ()

    def open(self, passes: Passes, seed: int, inputs: Sequence[CheckedInput]) -> None:
        """Look at the first inputs, once; called in a worker."""
        with self._lock:
            if self.opening is not None or not inputs:
                return
            rows = self._rows_of(passes, seed, inputs)
            if rows is not None:
                rows.check(_ALONE)
                self.opening = rows.first.rows

    def add(self, one: CheckedInput) -> None:
        """An input that votes are about to be cast on."""
        with self._lock:
            if len(self._pool) < _MOST_POOLED:
                self._pool.append(one)

    def due(self, votes: int, layout: Layout) -> bool:
        """Whether a check is to be made now that so many more votes were cast."""
        cost = _PASSES * layout.chunk + _ROUNDS_AGAIN * layout.rows
        with self._lock:
            self._owed += votes / (_EVERY * cost)
            return self._owed >= 1 or len(self._pool) >= _MOST_POOLED

    def look(self, passes: Passes, seed: int) -> None:
        """Check the inputs that have waited for it, or the last ones again; called in a worker."""
        with self._lock:
            inputs, self._pool, self._owed = self._pool or self._last, [], 0.0
            self._last = inputs[:FIRST_INPUTS]
            rows = self._rows_of(passes, seed, inputs)
        if rows is not None:
            rows.check(alone=1)

    def _rows_of(self, passes: Passes, seed: int, inputs: Sequence[CheckedInput]) -> _Rows | None:
        """Rows of these inputs but for those that the model fails on: that is said when votes are cast on them."""
        self._drawn += 1
        number = self._drawn
        try:
            return _Rows(passes, seed, inputs, number) if inputs else None
        except ModelError:
            voting = [one for one in inputs if _votes(passes, seed, one, number)]
            return _Rows(passes, seed, voting, number) if 0 < len(voting) < len(inputs) else None


def _votes(passes: Passes, seed: int, one: CheckedInput, number: int) -> bool:
    try:
        _Rows(passes, seed, [one], number)
    except ModelError:
        return False
    return True


class _Rows:
    """A pass of noisy rows, the same number of each input, and the answers to it."""

    def __init__(self, passes: Passes, seed: int, inputs: Sequence[CheckedInput], number: int) -> None:
        self._passes, self._prepared = passes, passes.prepared
        chunk = passes.layout.chunk
        self._random = torch.Generator().manual_seed(number)
        inputs = inputs[:chunk]
        share = -(-chunk // len(inputs))
        self._owners = [one.index for one in inputs for _ in range(share)][:chunk]
        self._numbers = [row for _ in inputs for row in range(share)][:chunk]
        rows = torch.cat([noisy_rows(passes, seed, one, number, share) for one in inputs])[:chunk]
        self.first = Probe(rows, self._ask(rows))

    def check(self, alone: int) -> None:
        """Refuse a model that gives a row another answer beside other rows, at another place, alone, or again."""
        prepared, rows = self._prepared, self.first.rows
        thorough = alone > 1
        if thorough:
            check_again(prepared.name, self._ask, self.first, prepared.kind, prepared.eps)
        extreme = self._extremes()
        order = torch.randperm(len(rows), generator=self._random)
        moved = self.first
        for half in (0, 1) if thorough else (int(torch.randint(2, (), generator=self._random)),):
            moved = self._in_a_crowd(order, half, extreme[half])
        chosen = [*extreme, *torch.randperm(len(rows), generator=self._random).tolist()]
        for row in chosen[:alone] if thorough else chosen[2:3]:
            self._compare([row], [row], self._alone(row)[row : row + 1], "alone, filling a pass")
        if thorough:
            if prepared.workers(2) > 1:
                check_together(prepared.name, self._ask, (self.first, moved), prepared.kind, prepared.eps)
            prepared.base.check_finely(prepared, rows)

    def _in_a_crowd(self, order: Tensor, half: int, crowd: int) -> Probe:
        """Every second row at another place, all others being one row."""
        rows, places = self.first.rows, torch.arange(len(self.first.rows))
        taken = torch.where(places % 2 == half, order, torch.tensor(crowd))
        probe = Probe(rows[taken], self._ask(rows[taken]))
        self._compare(
            order[half::2].tolist(), places[half::2].tolist(), probe.answers[half::2], "beside others"
        )
        return probe

    def _compare(self, rows: list[int], places: list[int], found: Tensor, where: str) -> None:
        prepared = self._prepared
        expected = self.first.answers[rows]
        differing = torch.nonzero(differing_rows(expected, found, prepared.kind, prepared.eps))[:, 0].tolist()
        if not differing:
            return
        # Rounding goes by the place in a pass: a label may hang on it, and then does so whatever the company.
        if len(differing) <= max(1, len(rows) // _TIES) and where != "alone, filling a pass":
            differing = [at for at in differing if not self._by_place(rows[at], places[at], found[at])]
            if not differing:
                return
        of = [rows[at] for at in differing]
        owner = self._owners[of[0]]
        named = [self._numbers[row] for row in of if self._owners[row] == owner]
        listed = ", ".join(map(str, named[:5])) + (" …" if len(named) > 5 else "")
        at = differing[0]
        raise DependentVotesError(
            f"{prepared.name} gives a row another answer when the rest of the batch changes, or its place: input "
            f"{owner}, noisy rows {listed} ({len(of)} of {len(rows)} rows looked at); the first is "
            f"{_told(expected[at])} in a pass of votes and {_told(found[at])} {where}. Votes must be independent. "
            f"The usual cause: {prepared.base.mixing_cause()}"
        )

    def _by_place(self, row: int, place: int, found: Tensor) -> bool:
        alone = self._alone(row)
        return torch.equal(alone[row], self.first.answers[row]) and torch.equal(alone[place], found)

    def _alone(self, row: int) -> Tensor:
        rows = self.first.rows
        return self._ask(rows[row : row + 1].expand_as(rows).contiguous())

    def _ask(self, rows: Tensor) -> Tensor:
        with torch.inference_mode(), naming(self._passes.purpose, self._owners):
            return self._prepared.outputs(rows.clone()).cpu()

    def _extremes(self) -> list[int]:
        """The rows with the smallest and the largest sum: what moves a mean of the batch."""
        sums = self.first.rows.flatten(1).double().sum(1)
        return [int(sums.argmin()), int(sums.argmax())]


def noisy_rows(passes: Passes, seed: int, one: CheckedInput, number: int, count: int) -> Tensor:
    """Noisy copies of an input that no vote is cast on."""
    rows = torch.empty((count, *passes.prepared.input_shape), dtype=passes.dtype)
    one.copies.draw(rows, BlockBits().seek(Stream(seed, one.index, Phase.CHECK), number))
    return rows


class Recast:
    """Votes that were counted, some of which are cast again by the caller: whoever cast them, they must be the same.

    The run's first round and a sample of all others are kept; a round to cast again takes each slot from any of them,
    so that blocks sit where they did, beside others than before.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._seen = 0
        self._random = random.Random(0)
        self._kept: list[list[tuple[Block, NDArray[np.int64]] | None]] = []

    def add(self, task: Sequence[Sequence[Block | None]], sums: Sequence[NDArray[np.int64]]) -> None:
        """Votes that were just counted."""
        counted = iter(sums)
        for one in task:
            self._seen += 1
            place = len(self._kept) if len(self._kept) < _KEPT else self._random.randrange(1, self._seen)
            kept = [None if block is None else (block, next(counted)) for block in one]
            if place == len(self._kept):
                self._kept.append(kept)
            elif place < _KEPT:
                self._kept[place] = kept

    def chosen(self) -> Callable[[Passes], None] | None:
        """What casts two rounds again: one with every second block of the run's first, and one of any blocks."""
        rounds = []
        for first in (True, False):
            picked = []
            for slot in range(self._slots):
                full = [one[slot] for one in self._kept if one[slot] is not None]
                early = first and slot % 2 == 0
                picked.append(None if not full else full[0] if early else self._random.choice(full))
            if any(one is not None for one in picked):
                rounds.append(picked)

        def again(passes: Passes) -> None:
            for one in rounds:
                _cast_again(passes, one)

        return again if rounds else None


def _cast_again(passes: Passes, picked: Sequence[tuple[Block, NDArray[np.int64]] | None]) -> None:
    task = [[None if one is None else one[0] for one in picked]]
    casts = passes.cast_task(task)
    for (block, before), (now, _) in zip(filter(None, picked), casts, strict=True):
        changed = int(np.abs(before[0] - now[0]).sum()) // 2
        exact = passes.prepared.device == "cpu"
        if not np.array_equal(before, now) and (exact or changed * _VOTES_OF_DEVICES > block.votes):
            origin = block.number * passes.layout.block
            raise DependentVotesError(
                f"{passes.prepared.name} votes otherwise when the same noisy rows are shown to it again: input "
                f"{block.index}, {block.stream.phase.name.lower()} votes {origin + block.first} to "
                f"{origin + block.last - 1} were {before[0].tolist()} and are {now[0].tolist()}. It goes by the rest "
                "of the batch, by passes before or at the same time, or is another function in a worker than here (a "
                "setting changed after it was imported)"
            )


def _told(answer: Tensor) -> str:
    if answer.ndim == 0:
        return f"class {int(answer)}"
    return f"class {int(answer.double().argmax())} ({', '.join(f'{score:.4g}' for score in answer[:4].tolist())})"
