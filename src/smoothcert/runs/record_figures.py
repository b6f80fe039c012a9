"""Figures of records alone, of a run or of answers at hand: certified accuracy and average certified radius."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RunError
from smoothcert.runs.columns import Records, Rows


def certified_accuracy(records: Rows, radii: Sequence[float]) -> NDArray[np.float64]:
    """For each r of ``radii`` the fraction of all inputs that are correct, not abstained and have radius ≥ r."""
    check_some(records)
    certified = correct_radii(records)
    below = np.searchsorted(certified, np.asarray(radii, dtype=np.float64), side="left")
    return np.asarray((certified.size - below) / len(records), dtype=np.float64)


def average_certified_radius(records: Rows) -> float:
    """ACR: the mean over all inputs of the radius, counted as 0 where the answer is wrong or missing."""
    check_some(records)
    return math.fsum(correct_radii(records)) / len(records)


def correct_radii(records: Rows) -> NDArray[np.float64]:
    """The radii of the correct answers, in ascending order."""
    columns = Records.of(records)
    return np.sort(columns.radius[columns.correct])


def step_counts(
    sizes: NDArray[np.float64], start: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """From ``start`` on, where the number of ``sizes`` (ascending) that are reached drops, and that number beyond."""
    jumps = np.unique(sizes)
    left = sizes.size - np.searchsorted(sizes, jumps, side="right")
    return np.concatenate([[start], jumps]), np.concatenate([[sizes.size], left]).astype(np.int64)


def check_some(records: Rows) -> None:
    """Refuse to average nothing."""
    if not records:
        raise RunError("no input has been certified yet, so there is nothing to average")
