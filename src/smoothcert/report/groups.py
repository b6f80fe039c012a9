"""Groups: runs on the same inputs, which can share a table, a chart and pictures, and be compared input by input."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from smoothcert.analysis.about import data_in_words, dataset_of, split_of
from smoothcert.analysis.evidence import is_sample
from smoothcert.analysis.metrics import largest_radius
from smoothcert.analysis.tables.radii import multiples, round_step
from smoothcert.runs import Run
from smoothcert.runs.columns import Floats, Ints
from smoothcert.runs.statement import DataStatement

_MOST_SLIDER_STEPS = 100
_ABSENT = 255  # one byte per input: the number of slider steps it is certified at, or this


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on the same data. ``by_labels`` says that this was told from indices and labels, for want of a hash."""

    name: str
    runs: tuple[Run, ...]
    by_labels: bool

    def reach(self) -> float:
        """The largest radius certified correctly."""
        return max((largest_radius(run.records) for run in self.runs), default=0.0)

    def indices(self) -> Ints:
        """Every input that a run of the group has, in order."""
        found = [run.records.index for run in self.runs if len(run.records)]
        return np.unique(np.concatenate(found)) if found else np.array([], dtype=np.int64)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs with the same data hash together; logs, which state none, where indices and labels agree."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run.manifest.data.sha256 or f"labels {_labels_digest(run)}", []).append(run)
    groups = []
    for same in members.values():
        named = next((name for run in same if (name := dataset_of(run)) is not None), None)
        split = next((name for run in same if (name := split_of(run)) is not None), None)
        by_labels = not same[0].manifest.data.has(DataStatement.sha256)
        # Several groups may be nameless; their labels tell them apart.
        name = named or f"data set not named (labels {_labels_digest(same[0])[:8]})"
        name = data_in_words(name, split) or name
        groups.append(Group(name, tuple(same), by_labels))
    return groups


def slider_radii(reach: float) -> list[str]:
    """At most a hundred or so round radii from 0 to just above ``reach``, at which runs are compared."""
    if reach <= 0:
        return ["0"]
    step = round_step(Decimal(reach), _MOST_SLIDER_STEPS)
    return multiples(step, int((Decimal(reach) / step).to_integral_value(ROUND_FLOOR)) + 1)


def comparison_json(group: Group) -> dict[str, Any] | None:
    """For every run and input, one byte: at how many of the slider's radii it is right and certified.

    Of runs that a test holds for: complete ones, whose inputs don't depend on one another.
    """
    runs = [run for run in group.runs if len(run.records) and is_sample(run)]
    if len(runs) < 2:
        return None
    radii = slider_radii(group.reach())
    indices, values = group.indices(), np.array([float(radius) for radius in radii])
    return {
        "radii": radii,
        "levels": {
            run.name: base64.b64encode(_levels(run, indices, values).tobytes()).decode("ascii")
            for run in runs
        },
    }


def _levels(run: Run, indices: Ints, radii: Floats) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    levels = np.full(len(indices), _ABSENT, dtype=np.uint8)
    certified = np.where(run.records.correct, np.searchsorted(radii, run.records.radius, side="right"), 0)
    levels[np.searchsorted(indices, run.records.index)] = certified
    return levels


def _labels_digest(run: Run) -> str:
    return hashlib.sha256(run.records.index.tobytes() + run.records.label.tobytes()).hexdigest()
