"""The epochs of a training run: what ``metrics.jsonl`` has a line for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from smoothcert.errors import RunError
from smoothcert.runs.json_lines import read_parsed, write_lines
from smoothcert.runs.layout import RunFiles

ValidationInputs = Literal["holdout", "test", "train"]


@dataclass(frozen=True)
class EpochMetrics:
    """What one epoch did; ``accuracy`` is that of the base classifier after it, on noisy validation inputs.

    ``acr`` is that of an :class:`~smoothcert.training.AcrCheck`, where one was made; ``seconds`` are without it.
    """

    epoch: int
    loss: float
    accuracy: float
    validated_on: ValidationInputs
    learning_rate: float
    seconds: float
    acr: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The figures there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def write_epochs(directory: Path, history: Iterable[EpochMetrics]) -> None:
    """Replace the lines of a training run."""
    write_lines(RunFiles(directory).metrics, map(EpochMetrics.as_json, history))


def read_epochs(directory: Path) -> tuple[EpochMetrics, ...]:
    """The epochs of a training run so far, without lines that are damaged; refused where there is none."""
    files = RunFiles(directory)
    files.refuse_link()
    if not files.metrics.is_file():
        raise RunError(f"{directory} holds no {files.metrics.name}: name the directory of a training run")
    found = tuple(read_parsed(files.metrics, _parsed))
    if not found:
        raise RunError(f"{files.metrics} has no epoch that can be read")
    return found


def _parsed(fields: dict[str, Any]) -> EpochMetrics:
    one = EpochMetrics(**fields)
    for name in ("epoch", "loss", "accuracy", "learning_rate", "seconds", "acr"):
        value = getattr(one, name)
        if value is None and name == "acr":
            continue
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{name} is no number: {value!r}")
    if one.validated_on not in get_args(ValidationInputs):
        raise ValueError(f"unknown inputs: {one.validated_on!r}")
    return one
