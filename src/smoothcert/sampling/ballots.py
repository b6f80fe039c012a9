"""Ballots: from what a model returns for a pass to checked votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds import VoteKind
from smoothcert.errors import ModelError
from smoothcert.tally import SOFT_UNIT

OutputKind = Literal["labels", "scores", "probabilities"]

_NUMPY_TYPES = (torch.float32, torch.float64)
_SUM_TOLERANCE = (
    1e-3  # probabilities are divided by their sum; a larger error means they aren't probabilities
)


@dataclass(frozen=True)
class Ballots:
    """The votes of one pass: a label a row and, for soft votes, fixed-point probabilities and their squares."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.int64] | None = None
    squares: NDArray[np.int64] | None = None


def read_ballots(outputs: torch.Tensor, kind: OutputKind, classes: int, votes: VoteKind) -> Ballots:
    """Turn a pass's outputs into votes; raises ModelError for anything that can't be one."""
    if kind == "labels":
        return Ballots(_checked_labels(outputs, classes))
    if outputs.ndim != 2 or outputs.shape[1] != classes:
        raise ModelError(f"the model must return {classes} scores a row, got shape {tuple(outputs.shape)}")
    scores = (outputs if outputs.dtype in _NUMPY_TYPES else outputs.float()).cpu().numpy()
    if np.isnan(scores.max()):  # NaN is the maximum of whatever holds it
        raise ModelError("the model returned NaN: its weights or its input range may be broken")
    labels = scores.argmax(1)
    if votes == "hard":
        return Ballots(labels)
    shares = _shares(torch.from_numpy(scores).double(), kind).numpy()
    # Rounded so that a mean can only be understated and a variance only overstated.
    return Ballots(
        labels,
        np.floor(shares * SOFT_UNIT).astype(np.int64),
        np.ceil(shares * shares * SOFT_UNIT).astype(np.int64),
    )


def _checked_labels(outputs: torch.Tensor, classes: int) -> NDArray[np.int64]:
    if outputs.ndim != 1 or outputs.is_floating_point():
        raise ModelError(
            f"labels must be one integer a row, got {outputs.dtype} of shape {tuple(outputs.shape)}"
        )
    labels = outputs.to(torch.int64).cpu().numpy()
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise ModelError(f"the model returned label {labels.min()}..{labels.max()}, outside 0..{classes - 1}")
    return labels


def _shares(outputs: torch.Tensor, kind: OutputKind) -> torch.Tensor:
    """Non-negative float64 rows that sum to one, as the soft certificates require."""
    if kind == "scores":
        return torch.softmax(outputs, 1)
    sums = outputs.sum(1, keepdim=True)
    if bool((outputs < 0).any()) or bool(((sums - 1).abs() > _SUM_TOLERANCE).any()):
        raise ModelError(
            "soft votes need probabilities: non-negative rows that sum to 1, or scores to softmax"
        )
    return outputs / sums
