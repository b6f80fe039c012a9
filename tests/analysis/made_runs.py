"""Small runs whose figures can be worked out by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run

# Correct at 0.2, 0.5 (twice) and 1.0; wrong at 3.0; one abstention; correct with nothing certified: 7 inputs.
FIVE_AND_TWO = tuple(
    Record(index, label, predicted, radius, 0.25, 1.0)
    for index, (label, predicted, radius) in enumerate(
        [(1, 1, 0.5), (2, 2, 1.0), (3, 4, 3.0), (5, -1, 0.0), (6, 6, 0.2), (7, 7, 0.5), (8, 8, 0.0)]
    )
)


def made_run(
    name: str = "made", records: tuple[Record, ...] = FIVE_AND_TWO, path: Path | None = None, **plan: Any
) -> Run:
    """A complete run: it was asked for the records it has."""
    stated = {
        "noise": "gaussian",
        "sigma": 0.25,
        "norm": "l2",
        "bound": "clopper-pearson",
        "n": 1000,
        "alpha": 0.001,
    }
    data = {"planned": [record.index for record in records]}
    return Run((path or Path()) / name, Manifest.of("certify", stated | plan, {}, data), records)


def trained(run: Run, **facts: Any) -> Run:
    """The same run, stating these facts of its model's training."""
    return replace(run, manifest=run.manifest.stating(origin=run.manifest.origin.but(trained=facts)))
