"""The epochs of a training run: what ``metrics.jsonl`` has a line for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from smoothcert.errors import RunError
from smoothcert.plain_text import shown_name
from smoothcert.runs.json_lines import read_parsed, write_lines
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest

ValidationInputs = Literal["holdout", "test", "train"]

_HUGE = 1e100  # far above any figure of a training, far below what a picture's axis can hold
_MOST_COUNTED = 10**9
_COUNTS = ("epoch", "acr_inputs", "acr_votes")
_LIMITS = {
    "loss": (-_HUGE, _HUGE),  # an objective's own may be negative
    "accuracy": (0.0, 1.0),
    "learning_rate": (0.0, _HUGE),
    "seconds": (0.0, _HUGE),
    "acr": (0.0, _HUGE),
    "sigma": (0.0, _HUGE),
}
_NORM = re.compile(r"[a-z0-9-]{1,20}")
_OPTIONAL = ("acr", "acr_inputs", "acr_votes", "sigma", "norm")


@dataclass(frozen=True)
class EpochMetrics:
    """What one epoch did; ``accuracy`` is that of the base classifier after it, on noisy validation inputs.

    ``acr`` is that of an :class:`~smoothcert.training.AcrCheck`, where one was made, of ``acr_inputs`` inputs with
    ``acr_votes`` votes each; ``seconds`` are without it. Both are measured at ``sigma``, the plan's, with noise that
    certifies ``norm``. Files of earlier versions don't state the last four; their accuracy was measured at the σ that
    a ramp had reached.
    """

    epoch: int
    loss: float
    accuracy: float
    validated_on: ValidationInputs
    learning_rate: float
    seconds: float
    acr: float | None = None
    acr_inputs: int | None = None
    acr_votes: int | None = None
    sigma: float | None = None
    norm: str | None = None

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
    found: list[EpochMetrics] = []
    for one in read_parsed(files.metrics, _parsed):
        if not found or one.epoch > found[-1].epoch:  # training goes one way
            found.append(one)
    if not found:
        raise RunError(f"{files.metrics} has no epoch that can be read")
    return tuple(found)


def trained_on(directory: Path) -> str | None:
    """The data set that a training run states; None where its statement is missing or can't be read."""
    try:
        name = Manifest.load(directory).data.name
    except (OSError, RunError):
        return None
    return shown_name(name) if name else None


def _parsed(fields: dict[str, Any]) -> EpochMetrics:
    one = EpochMetrics(**fields)
    stated = {name: value for name, value in vars(one).items() if value is not None or name not in _OPTIONAL}
    for name in _COUNTS:
        if name in stated and (type(stated[name]) is not int or not 1 <= stated[name] <= _MOST_COUNTED):
            raise ValueError(f"{name} is no count: {stated[name]!r}")
    for name, (least, most) in _LIMITS.items():
        if name in stated and (type(stated[name]) not in (int, float) or not least <= stated[name] <= most):
            raise ValueError(f"{name} can't be {stated[name]!r}")
    if one.norm is not None and not _NORM.fullmatch(one.norm):
        raise ValueError(f"norm can't be {one.norm!r}")
    if one.validated_on not in get_args(ValidationInputs):
        raise ValueError(f"unknown inputs: {one.validated_on!r}")
    return one
