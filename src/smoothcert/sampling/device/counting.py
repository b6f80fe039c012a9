"""Votes counted on the device: exact integer sums, and what is wrong with an output, noted there and told later.

The rules are those of :mod:`smoothcert.sampling.ballots`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.bounds import VoteKind
from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import (
    EXACT_IN_FLOAT64,
    INFINITE,
    NAN,
    NO_SHARES,
    ROUNDED,
    SUM_TOLERANCE,
    OutputKind,
    check_label_type,
    check_scores_shape,
    out_of_range,
)
from smoothcert.sampling.device.transfers import sent
from smoothcert.tally import SOFT_UNIT

_RANGE = "labels"  # its message needs the smallest and the largest
_PROBLEMS = (_RANGE, NAN, ROUNDED, INFINITE, NO_SHARES)
_COMPARABLE = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1


class DeviceCounts:
    """The sums of a task's blocks and the rows of each that can't be votes, in one array that is read once."""

    def __init__(
        self,
        blocks: int,
        kind: OutputKind,
        classes: int,
        votes: VoteKind,
        order: tuple[int, ...] | None,
        device: str,
    ) -> None:
        self._blocks, self._kind, self._classes, self._votes = blocks, kind, classes, votes
        self._columns = 3 if votes == "soft" else 1
        self._sizes = [self._columns * blocks * classes, len(_PROBLEMS) * blocks, 2]
        self.held = torch.zeros(sum(self._sizes), dtype=torch.int64, device=device)
        sums, self._wrong, self._labels = torch.split(self.held, self._sizes)
        self._labels[0].fill_(_LARGEST)
        self._labels[1].fill_(_LEAST)
        self._sums = sums.view(self._columns, blocks, classes)
        self._order = None if order is None else sent(np.array(order), device)

    def add(self, outputs: Tensor, owner: Tensor, wanted: Tensor) -> None:
        """Count a pass. ``owner`` is each row's block, ``wanted`` 1 where the row was asked for and else 0."""
        if self._kind == "labels":
            labels = self._checked_labels(outputs, owner)
        else:
            check_scores_shape(outputs, self._classes)
            if self._order is not None:
                outputs = outputs.index_select(1, self._order)
            labels = self._first_of_largest(outputs, owner)
        self._sums[0].view(-1).scatter_add_(0, owner * self._classes + labels, wanted)
        if self._votes == "soft":
            shares = self._shares(outputs, owner)
            # Rounded as on the host: a mean can only be understated and a variance only overstated.
            parts = ((shares * SOFT_UNIT).floor(), (shares * shares * SOFT_UNIT).ceil())
            for column, part in enumerate(parts, start=1):
                self._sums[column].index_add_(0, owner, part.to(torch.int64) * wanted.unsqueeze(1))

    def read(
        self, found: NDArray[np.int64], naming: Callable[[Sequence[int], str], ModelError]
    ) -> list[NDArray[np.int64]]:
        """The sums of each block, as :meth:`Ballots.sums` has them; refused with the blocks that went wrong."""
        sums, wrong, labels = np.split(found, np.cumsum(self._sizes)[:-1])
        for problem, rows in zip(_PROBLEMS, wrong.reshape(-1, self._blocks)):
            if rows.any():
                reason = (
                    out_of_range(int(labels[0]), int(labels[1]), self._classes)
                    if problem == _RANGE
                    else problem
                )
                raise naming(np.flatnonzero(rows).tolist(), reason)
        by_block = sums.reshape(self._columns, self._blocks, self._classes).transpose(1, 0, 2)
        return list(np.ascontiguousarray(by_block))

    def _checked_labels(self, outputs: Tensor, owner: Tensor) -> Tensor:
        check_label_type(outputs)
        labels = outputs.to(torch.int64)
        self._note(_RANGE, (labels < 0) | (labels >= self._classes), owner)
        self._labels[0].copy_(torch.minimum(self._labels[0], labels.min()))
        self._labels[1].copy_(torch.maximum(self._labels[1], labels.max()))
        labels = labels.clamp(0, self._classes - 1)
        return labels if self._order is None else self._order.argsort()[labels]

    def _first_of_largest(self, scores: Tensor, owner: Tensor) -> Tensor:
        if not scores.is_floating_point():
            whole = _whole(scores)
            return (whole ^ _LEAST if scores.dtype == torch.uint64 else whole).argmax(1)
        if scores.dtype not in _COMPARABLE:
            scores = scores.float()  # exact for the 8-bit floats
        self._note(NAN, scores.isnan().any(1), owner)
        return scores.argmax(1)

    def _shares(self, outputs: Tensor, owner: Tensor) -> Tensor:
        """Non-negative float64 rows that sum to one; anything between 0 and 1 in rows that are refused."""
        if not outputs.is_floating_point():
            whole, least = _whole(outputs), 0 if outputs.dtype == torch.uint64 else -EXACT_IN_FLOAT64
            self._note(ROUNDED, ((whole < least) | (whole > EXACT_IN_FLOAT64)).any(1), owner)
        numbers = outputs.double()
        if self._kind == "scores":
            shares = torch.softmax(numbers, 1)
            self._note(INFINITE, ~shares.isfinite().all(1), owner)
        else:
            sums = numbers.sum(1, keepdim=True)
            honest = (numbers >= 0).all(1) & ((sums - 1).abs() <= SUM_TOLERANCE).squeeze(1)
            self._note(NO_SHARES, ~honest, owner)
            shares = numbers / sums
        return shares.nan_to_num(0.0).clamp(0.0, 1.0)

    def _note(self, problem: str, rows: Tensor, owner: Tensor) -> None:
        place = _PROBLEMS.index(problem) * self._blocks
        self._wrong.scatter_add_(0, owner + place, rows.to(torch.int64))


def _whole(numbers: Tensor) -> Tensor:
    """As int64; 64-bit unsigned ones keep their bits, and so are in order once the first is turned."""
    return numbers.view(torch.int64) if numbers.dtype == torch.uint64 else numbers.to(torch.int64)
