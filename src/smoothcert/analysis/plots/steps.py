"""What is drawn of certified accuracy: its steps, how sure they are, their envelope, and the radius no vote exceeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.intervals import rate_interval
from smoothcert.analysis.metrics import accuracy_beyond_jumps, correct_radii
from smoothcert.runs import Run
from smoothcert.runs.columns import Rows
from smoothcert.runs.record_figures import step_counts

Curve = NDArray[np.float64]


def certified_accuracy_steps(records: Rows) -> tuple[Curve, Curve]:
    """Radii at which certified accuracy drops, from 0 on, and its value (0 to 1) beyond each of them."""
    return step_curve(correct_radii(records), len(records), start=0.0)


def step_curve(certified: Curve, inputs: int, start: float) -> tuple[Curve, Curve]:
    """From ``start`` on, where the share of ``inputs`` that reach a size drops, and its value beyond."""
    sizes, counts = step_counts(certified, start)
    return sizes, counts / inputs


def pointwise_band(accuracy: Curve, inputs: int) -> tuple[Curve, Curve]:
    """95 % Clopper–Pearson limits of each value; they hold for one radius looked at, not for the whole curve."""
    counts = np.rint(accuracy * inputs).astype(int)
    limits = {count: rate_interval(count, inputs) for count in set(counts.tolist())}
    low, high = zip(*(limits[count] for count in counts.tolist()))
    return np.array(low), np.array(high)


def envelope_steps(runs: Sequence[Run]) -> tuple[Curve, Curve]:
    """Radii at which any run's certified accuracy drops, from 0 on, and the highest value beyond each of them."""
    radii, curves = accuracy_beyond_jumps(runs)
    return radii, curves.max(axis=0)
