"""Ballots: from what a model returns for a pass to checked votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import ModelError
from smoothcert.tally import SOFT_UNIT

OutputKind = Literal["labels", "scores", "probabilities"]

SUM_TOLERANCE = 1e-3
"""Probabilities are divided by their sum; a larger error means they aren't any."""
EXACT_IN_FLOAT64 = 1 << 53

NAN = "the model returned NaN: its weights or its input range may be broken"
ROUNDED = "soft votes of whole numbers beyond 2**53 would be rounded: return float64 scores"
INFINITE = "soft votes need finite scores: the model returned infinite ones, or none else in a row"
NO_SHARES = "soft votes need probabilities: non-negative rows that sum to 1, or scores to softmax"


@dataclass(frozen=True)
class Ballots:
    """The votes of one pass: a label a row and, for soft votes, fixed-point probabilities and their squares."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.int64] | None = None
    squares: NDArray[np.int64] | None = None

    def part(self, start: int, rows: slice) -> Ballots:
        """The votes of these rows, counted from ``start``."""
        rows = slice(start + rows.start, start + rows.stop)
        return Ballots(*(column[rows] for column in self._columns()))

    @staticmethod
    def joined(parts: Sequence[Ballots]) -> Ballots:
        """All rows in order."""
        return Ballots(*map(np.concatenate, zip(*(part._columns() for part in parts))))

    def sums(self, classes: int) -> NDArray[np.int64]:
        """Votes for each class; for soft votes also the sums of probabilities and of squares."""
        counts = np.bincount(self.labels, minlength=classes)
        return np.array([counts, *(column.sum(0) for column in self._columns()[1:])])

    def _columns(self) -> list[NDArray[np.int64]]:
        columns = (self.labels, self.probabilities, self.squares)
        return [column for column in columns if column is not None]


def read_ballots(outputs: torch.Tensor, kind: OutputKind, classes: int, votes: VoteKind) -> Ballots:
    """Turn a pass's outputs into votes; raises ModelError for anything that can't be one."""
    if kind == "labels":
        return Ballots(_checked_labels(outputs, classes))
    check_scores_shape(outputs, classes)
    scores = _scores(outputs)
    labels = scores.argmax(1)
    if votes == "hard":
        return Ballots(labels)
    shares = _shares(scores, kind)
    # Rounded so that a mean can only be understated and a variance only overstated.
    return Ballots(
        labels,
        np.floor(shares * SOFT_UNIT).astype(np.int64),
        np.ceil(shares * shares * SOFT_UNIT).astype(np.int64),
    )


def check_scores_shape(outputs: torch.Tensor, classes: int) -> None:
    """Refuse anything but a score for each class in each row."""
    if outputs.ndim != 2 or outputs.shape[1] != classes:
        raise ModelError(f"the model must return {classes} scores a row, got shape {tuple(outputs.shape)}")


def check_label_type(outputs: torch.Tensor) -> None:
    """Refuse anything but a whole number for each row."""
    if outputs.ndim != 1 or outputs.is_floating_point() or outputs.is_complex():
        raise ModelError(
            f"labels must be one integer a row, got {outputs.dtype} of shape {tuple(outputs.shape)}"
        )


def out_of_range(smallest: int, largest: int, classes: int) -> str:
    """What is said of labels that aren't any."""
    return f"the model returned label {smallest}..{largest}, outside 0..{classes - 1}"


def labels_of(outputs: torch.Tensor) -> NDArray[np.int64]:
    """The class of each row of scores: the first of the largest, compared in the model's own type."""
    labels: NDArray[np.int64] = _scores(outputs).argmax(1)
    return labels


def _scores(outputs: torch.Tensor) -> NDArray[Any]:
    """Scores as they are: no type is converted to one that can't tell all of its numbers apart."""
    if outputs.is_complex():
        raise ModelError(f"scores must be real numbers, which can be compared; got {outputs.dtype}")
    outputs = outputs.detach()
    if outputs.is_floating_point() and outputs.dtype not in (torch.float16, torch.float32, torch.float64):
        outputs = outputs.float()  # exact for bfloat16 and the 8-bit floats, which NumPy doesn't know
    scores: NDArray[Any] = outputs.cpu().numpy()
    if outputs.is_floating_point() and np.isnan(scores.max()):  # NaN is the maximum of whatever holds it
        raise ModelError(NAN)
    return scores


def _checked_labels(outputs: torch.Tensor, classes: int) -> NDArray[np.int64]:
    check_label_type(outputs)
    labels = outputs.to(torch.int64).cpu().numpy()
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise ModelError(out_of_range(int(labels.min()), int(labels.max()), classes))
    return labels


def _shares(scores: NDArray[Any], kind: OutputKind) -> NDArray[np.float64]:
    """Non-negative float64 rows that sum to one, as the soft certificates require."""
    if scores.dtype.kind in "iu" and not (
        -EXACT_IN_FLOAT64 <= scores.min() <= scores.max() <= EXACT_IN_FLOAT64
    ):
        raise ModelError(ROUNDED)
    outputs = torch.from_numpy(scores).double()
    if kind == "scores":
        shares = torch.softmax(outputs, 1)
        if not bool(torch.isfinite(shares).all()):
            raise ModelError(INFINITE)
        return shares.numpy()
    sums = outputs.sum(1, keepdim=True)
    if bool((outputs < 0).any()) or not bool(((sums - 1).abs() <= SUM_TOLERANCE).all()):
        raise ModelError(NO_SHARES)
    return (outputs / sums).numpy()
