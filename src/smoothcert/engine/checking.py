"""The check of a model on the rows of the run itself: noisy copies of the inputs given, in other company and alone.

A vote must be a function of its row. So rows of the inputs at hand are evaluated several times, in passes of the shape
that votes are cast in: again, at other places among a crowd of one repeated row, and alone (the row repeated through
the whole pass). A torch module itself must give them the answers of what was captured from it. Votes that were counted
are cast again by the caller, each in its slot but beside others, whichever worker cast them. All of it comes from a
stream of its own: no vote changes.

What it shows: if a vote changes in freshly drawn company with probability q, k such companies miss it with probability
(1 − q)ᵏ.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.engine.schedule import Block, BlockBits
from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.models.numerics import Layout
from smoothcert.models.outputs import differing_rows, naming, same_answers
from smoothcert.tally import Phase

if TYPE_CHECKING:
    from smoothcert.engine.passes import Passes, Voter

FIRST_INPUTS = 8
"""Inputs that are checked before any vote is cast."""

_EVERY = 64  # rows of votes that pay for one of a check: below 2 %
_PASSES = 4  # of a check: the rows, in a crowd, alone, and what a tie may need
_MOST_POOLED = 256  # inputs that wait for a check; more of them don't wait for the votes
_KEPT = 8  # rounds of votes kept to be cast again, the first of the run among them
_ROUNDS_AGAIN = 2  # cast again in a check
_TIES = 200  # of so many rows one label may go by its place, where the row alone confirms it
_ALONE = 4  # rows shown alone in the opening check
_COARSE = 4  # times the rounding of types of 16 bits that routes may add up
_VOTES_OF_DEVICES = 1000  # of so many votes a device that doesn't give the same bits twice may change one


class RowCheck:
    """What is known of one prepared model: whether its opening check is done, and what has come since.

    Calls pool their inputs here, so that many small ones (a service's) share a check.
    """

    def __init__(self) -> None:
        self.opening: Tensor | None = None
        """The rows of the opening check, which workers elsewhere must answer alike."""
        self._lock = threading.Lock()
        self._pool: list[Voter] = []
        self._last: list[Voter] = []
        self._owed = 0.0
        self._drawn = 0

    def __reduce__(self) -> Any:
        """What was seen in one process says nothing of another."""
        return RowCheck, ()

    def open(self, voters: Sequence[Voter]) -> None:
        """Look at the first inputs, once; called in a worker."""
        with self._lock:
            if self.opening is not None:
                return
            rows = self._rows_of(voters)
            if rows is not None:
                rows.check(_ALONE)
                self.opening = rows.rows

    def add(self, voter: Voter) -> None:
        """An input that votes are about to be cast on."""
        with self._lock:
            if len(self._pool) < _MOST_POOLED:
                self._pool.append(voter)

    def due(self, votes: int, layout: Layout) -> bool:
        """Whether a check is to be made now that so many more votes were cast."""
        cost = _PASSES * layout.chunk + _ROUNDS_AGAIN * layout.rows
        with self._lock:
            self._owed += votes / (_EVERY * cost)
            return self._owed >= 1 or len(self._pool) >= _MOST_POOLED

    def look(self) -> None:
        """Check the inputs that have waited for it, or the last ones again; called in a worker."""
        with self._lock:
            voters, self._pool, self._owed = self._pool or self._last, [], 0.0
            self._last = voters[:FIRST_INPUTS]
            rows = self._rows_of(voters)
        if rows is not None:
            rows.check(alone=1)

    def _rows_of(self, voters: Sequence[Voter]) -> _Rows | None:
        """Rows of these inputs but for those that the model fails on: that is said when votes are cast on them."""
        self._drawn += 1
        voting = []
        try:
            return _Rows(voters, self._drawn) if voters else None
        except ModelError:
            for voter in voters:
                with suppress(ModelError):
                    _Rows([voter], self._drawn)
                    voting.append(voter)
        return _Rows(voting, self._drawn) if 0 < len(voting) < len(voters) else None


class _Rows:
    """A pass of noisy rows, the same number of each input, and the answers to it."""

    def __init__(self, voters: Sequence[Voter], number: int) -> None:
        self._passes = voters[0].passes
        self._prepared, chunk = self._passes.prepared, self._passes.layout.chunk
        self._random = torch.Generator().manual_seed(number)
        voters = voters[:chunk]
        share = -(-chunk // len(voters))
        self._owners = [voter.index for voter in voters for _ in range(share)][:chunk]
        self._numbers = [row for _ in voters for row in range(share)][:chunk]
        self.rows = torch.cat([noisy_rows(voter, number, share) for voter in voters])[:chunk]
        self._first = self._ask(self.rows)

    def check(self, alone: int) -> None:
        """Refuse a model that gives a row another answer beside other rows, at another place, alone, or again."""
        rows, thorough = self.rows, alone > 1
        if thorough:
            self._again_in_one_place()
        sums = rows.flatten(1).double().sum(1)
        extreme = int(sums.argmin()), int(sums.argmax())  # what moves a mean of the batch
        order = torch.randperm(len(rows), generator=self._random)
        for half in (0, 1) if thorough else (int(torch.randint(2, (), generator=self._random)),):
            self._in_a_crowd(order, half, extreme[half])
        chosen = [*extreme, *torch.randperm(len(rows), generator=self._random).tolist()]
        for row in chosen[:alone] if thorough else chosen[2:3]:
            self._compare([row], [row], self._alone(row)[row : row + 1], "alone, filling a pass")
        if thorough:
            self._compare_with_model()
            self._look_finely()

    def _again_in_one_place(self) -> None:
        """Refuse a model that answers the same rows differently, or other rows in the same memory as it did the first.

        Votes are drawn into memory of their own for each pass, but such a model isn't a function of its rows.
        """
        prepared, first, room = self._prepared, self._first, self.rows.clone()
        if not same_answers(first, self._ask_in(room), prepared.kind, prepared.eps):
            raise DependentVotesError(
                f"{prepared.name} gives another answer to the same rows; votes must be independent. The usual causes: "
                "a random layer, or something remembered from the passes before"
            )
        room.copy_(self.rows.flip(0))
        differing = differing_rows(first.flip(0), self._ask_in(room), prepared.kind, prepared.eps)
        if int(differing.sum()) > max(1, len(room) // _TIES):
            raise DependentVotesError(
                f"{prepared.name} gives other answers to rows that lie where others lay before: it keeps the batch "
                "that it is given and writes to it in a later pass, or knows it by its place in memory. Keep a copy "
                "of it"
            )

    def _compare_with_model(self) -> None:
        """Refuse a model that answers otherwise than the function that was made of it, as whatever it depends on."""
        prepared = self._prepared
        with prepared.base.asked(), torch.inference_mode():
            model = prepared.base.reference(prepared.numerics, prepared.input_shape, prepared.device)
            if model is None:
                return
            found = prepared.in_order(prepared.base.probe(model, self.rows).cpu())
        eps = prepared.eps * (_COARSE if prepared.eps > torch.finfo(torch.float32).eps else 1)
        differing = torch.nonzero(differing_rows(self._first, found, prepared.kind, eps))[:, 0].tolist()
        if differing:
            row = differing[0]
            raise DependentVotesError(
                f"{prepared.name} isn't the function that was captured from it: input {self._owners[row]}, noisy row "
                f"{self._numbers[row]} is {_told(self._first[row])} by that function and {_told(found[row])} by "
                f"the module ({len(differing)} of {len(found)} rows differ). Its forward depends on something beside "
                "the batch: random numbers, the time, or what earlier passes have left behind"
            )

    def _look_finely(self) -> None:
        """Refuse a model whose rows others move by less than its type rounds: it is seen afresh in a finer one."""
        prepared, base, single = self._prepared, self._prepared.base, torch.finfo(torch.float32).eps
        # A function may compute in float32 whatever it is given; a module is made to compute in float64.
        if prepared.eps < single or (prepared.eps == single and not base.differentiable):
            return
        finer = torch.float32 if prepared.eps > single else torch.float64
        numerics = replace(prepared.numerics, dtype=str(finer).removeprefix("torch."), route="eager")

        def ask(batch: Tensor) -> Tensor:
            """The answers of a model that has seen no other batch."""
            told = numerics, prepared.input_shape, prepared.device
            return base.probe(base.reference(*told) or base.open_route(*told).function, batch)

        rows = self.rows.to(finer)
        moved, place = torch.randperm(len(rows), generator=self._random), torch.arange(len(rows))
        with base.asked():
            try:
                first = ask(rows)
            except ModelError:  # it may be made for its own type alone
                return
            if finer == torch.float64 and first.dtype != finer:
                return  # it computes as it did before
            for half, others in enumerate((10 * rows.flip(0) - 5, 255 * rows.flip(0))):
                kept = (place % 2 == half).view(-1, *[1] * (rows.ndim - 1))
                try:
                    answers = ask(torch.where(kept, rows[moved], others))
                except ModelError:  # it may refuse what is out of its range, which its own rows are not
                    answers = ask(torch.where(kept, rows[moved], 1 - rows.flip(0)))
                expected = first[moved[half::2]]
                if not same_answers(expected, answers[half::2], prepared.kind, torch.finfo(finer).eps):
                    raise DependentVotesError(
                        f"{prepared.name} gives a row another answer when the rest of the batch changes, or its place; "
                        f"votes must be independent. The usual cause: {base.mixing_cause()}"
                    )

    def _in_a_crowd(self, order: Tensor, half: int, crowd: int) -> None:
        """Every second row at another place, all others being one row."""
        rows, places = self.rows, torch.arange(len(self.rows))
        taken = torch.where(places % 2 == half, order, torch.tensor(crowd))
        answers = self._ask(rows[taken])
        self._compare(order[half::2].tolist(), places[half::2].tolist(), answers[half::2], "beside others")

    def _compare(self, rows: list[int], places: list[int], found: Tensor, where: str) -> None:
        prepared = self._prepared
        expected = self._first[rows]
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
        return torch.equal(alone[row], self._first[row]) and torch.equal(alone[place], found)

    def _alone(self, row: int) -> Tensor:
        rows = self.rows
        return self._ask(rows[row : row + 1].expand_as(rows).contiguous())

    def _ask(self, rows: Tensor) -> Tensor:
        return self._ask_in(rows.clone())  # the model may write to its input

    def _ask_in(self, room: Tensor) -> Tensor:
        with torch.inference_mode(), naming(self._passes.purpose, self._owners, self._passes.layout.chunk):
            return self._prepared.outputs(room).cpu()


def noisy_rows(voter: Voter, number: int, count: int) -> Tensor:
    """Noisy copies of an input that no vote is cast on."""
    rows = torch.empty((count, *voter.passes.prepared.input_shape), dtype=voter.passes.dtype)
    voter.copies.draw(rows, BlockBits().seek(voter.stream(Phase.CHECK), number))
    return rows


class Recast:
    """Votes that were counted, some of which are cast again by the caller: both must be the same.

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
