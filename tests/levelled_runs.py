"""Runs of a classifier with σ levels whose inputs are limited by everything that can limit them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.datasets.base import Dataset
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.experimental.levels.choosers import ConstantChooser
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.files import sealed
from smoothcert.runs.statement import Choice

SIGMAS = (0.25, 0.5, 1.0)
INPUTS = 12


def dataset() -> Dataset:
    """Points at several distances from the border between classes, and from those between levels."""
    x = np.zeros((INPUTS, 3), np.float32)
    x[:, 0] = [-2, -1, -0.5, 0.5, 1, 2, 3, 3, 0.01, -3, 1.5, 0.75]
    x[:, 1] = [-3, -0.5, 0.5, 3, 0, 1, -0.5, 3, 0, 0.45, -0.9, 0.9]
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b"))


def halves(batch: np.ndarray) -> np.ndarray:
    """Class 0 left of 0, class 1 right of it, as scores."""
    first = batch[:, 0].astype(np.float64)
    return np.stack([-first, first], 1)


def chooser(batch: np.ndarray) -> np.ndarray:
    """The level follows the second coordinate: below −½, up to ½, above. Scores."""
    level = np.searchsorted([-0.5, 0.5], batch[:, 1])
    return np.eye(len(SIGMAS))[level]


def levelled(chosen: Any = chooser, **options: Any) -> LevelledClassifier:
    """The classifier of these runs."""
    fields = {"n": 2000, "n0": 20, "chooser_n0": 20, "chooser_n": 1000, "sigmas": SIGMAS} | options
    if not isinstance(chosen, ConstantChooser):
        fields.setdefault("chooser_sigma", 1.0)
    return LevelledClassifier(halves, chosen, **fields)


def certified(
    out: Path,
    chosen: Any = chooser,
    choice: Choice | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """A run in the directory ``out``."""
    certify_dataset(levelled(chosen, **options), dataset(), out, choice, progress)
    return out


def lines(run: Path) -> dict[int, dict[str, Any]]:
    """What stands in the run's levels.jsonl, by index."""
    found = map(json.loads, (run / "levels.jsonl").read_text().splitlines())
    return {line["index"]: line for line in found}


def edit_line(run: Path, index: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change one input's line, with the checksum that belongs to it."""
    edited = lines(run)
    change(edited[index])
    write_lines(run, edited)


def write_lines(run: Path, edited: dict[int, dict[str, Any]]) -> None:
    """Write these lines, each with its checksum: anybody can compute one."""
    for line in edited.values():
        line.pop("checksum", None)
    (run / "levels.jsonl").write_text("".join(f"{json.dumps(sealed(line))}\n" for line in edited.values()))
