"""Small runs whose figures can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run

# Correct at 0.2, 0.5 (twice) and 1.0; wrong at 3.0; one abstention; correct with nothing certified: 7 inputs.
FIVE_AND_TWO = (
    Record(0, 1, 1, 0.5, 0.25, 1.0),
    Record(1, 2, 2, 1.0, 0.25, 1.0),
    Record(2, 3, 4, 3.0, 0.25, 1.0),
    Record(3, 5, -1, 0.0, 0.25, 1.0),
    Record(4, 6, 6, 0.2, 0.25, 1.0),
    Record(5, 7, 7, 0.5, 0.25, 1.0),
    Record(6, 8, 8, 0.0, 0.25, 1.0),
)


def made_run(
    name: str = "made", records: tuple[Record, ...] = FIVE_AND_TWO, path: Path | None = None, **plan: Any
) -> Run:
    """A complete run: it was asked for the records it has."""
    stated = {"noise": "gaussian", "sigma": 0.25, "norm": "l2", "bound": "clopper-pearson"}
    return Run(
        (path or Path()) / name,
        Manifest.of(
            "certify",
            {**stated, "n": 1000, "alpha": 0.001, **plan},
            {},
            {"planned": [record.index for record in records]},
        ),
        records,
    )


def trained(run: Run, **facts: Any) -> Run:
    """The same run, stating these facts of its model's training."""
    return replace(run, manifest=run.manifest.stating(origin=run.manifest.origin.but(trained=facts)))
