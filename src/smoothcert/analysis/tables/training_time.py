"""What training cost and what it bought: seconds an epoch, hours in all, ACR (MACER, Tables 3 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from smoothcert.analysis.about import data_in_words
from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.tables.cells import (
    UNKNOWN,
    csv_escaped,
    csv_text,
    inputs_text,
    json_text,
    markdown_table,
    sigma_text,
)
from smoothcert.analysis.tables.naming import method_of
from smoothcert.analysis.trained import SECONDS, stated_training
from smoothcert.errors import InvalidValueError
from smoothcert.registry import check_name
from smoothcert.runs import Run

# What a run states may be of any origin: beyond these it is no training, and a cell of hundreds of digits.
_MOST_EPOCHS, _MOST_SECONDS = 10**9, 1e10


@dataclass(frozen=True)
class TrainingTime:
    """A run's model: how long it was trained on the machine that did, validation included, and its ACR."""

    method: str
    sigma: float | None
    epochs: int
    seconds: float
    acr: float
    dataset: str | None = None
    split: str | None = None
    inputs: int = 0
    planned: int | None = None
    complete: bool = True
    """Of the ACR: the inputs it is of so far, how many were asked for, and whether these are all."""

    @property
    def seconds_per_epoch(self) -> float:
        """Mean over the epochs."""
        return self.seconds / self.epochs

    @property
    def hours(self) -> float:
        """In all."""
        return self.seconds / 3600


def training_time(run: Run) -> TrainingTime:
    """As the run states it; refused where it states nothing, as imported logs don't."""
    trained = stated_training(run.manifest.origin)
    epochs, seconds = trained.get("epochs"), trained.get(SECONDS)
    # True is an int to Python.
    if (
        (isinstance(epochs, bool) or not isinstance(epochs, int) or not 1 <= epochs <= _MOST_EPOCHS)
        or (isinstance(seconds, bool) or not isinstance(seconds, int | float))
        or not 0 <= seconds <= _MOST_SECONDS
    ):
        raise InvalidValueError(
            f"{run.path} doesn't say how long its model was trained: runs certified from a training run do, since they "
            "copy it; certify the model again, or leave the run out"
        )
    summary = summarise(run, [0.0])
    return TrainingTime(
        method_of(run),
        summary.sigma,
        epochs,
        float(seconds),
        summary.acr,
        summary.dataset,
        summary.split,
        summary.inputs,
        summary.planned,
        summary.complete,
    )


def render_training_times(rows: Sequence[TrainingTime], format: str) -> str:
    """The rows in one of :data:`TIME_FORMATS`."""
    check_name("format of this layout", format, TIME_FORMATS)
    return TIME_FORMATS[format](rows)


def _markdown(rows: Sequence[TrainingTime]) -> str:
    cells = [
        [
            data_in_words(row.dataset, row.split) or UNKNOWN,
            row.method,
            sigma_text(row.sigma, unknown="?"),
            f"{row.seconds_per_epoch:.1f}",
            str(row.epochs),
            f"{row.hours:.2f}",
            inputs_text(row.inputs, row.planned, row.complete),
            f"{row.acr:.3f}",
        ]
        for row in rows
    ]
    header = ["data", "method", "σ", "s/epoch", "epochs", "hours", "inputs", "ACR"]
    note = "Time of training, validation after each epoch included, on the machine that trained:"
    return f"{note}\n\n{markdown_table(header, cells, text_columns={0, 1})}"


def _csv(rows: Sequence[TrainingTime]) -> str:
    lines = [
        [
            csv_escaped(row.method),
            *(row.sigma, row.epochs, row.seconds, row.acr),
            *(csv_escaped(text or "") for text in (row.dataset, row.split)),
            *(row.inputs, "" if row.planned is None else row.planned, "true" if row.complete else "false"),
        ]
        for row in rows
    ]
    header = [
        "method",
        "sigma",
        "epochs",
        "seconds",
        "acr",
        "dataset",
        "split",
        "inputs",
        "planned",
        "complete",
    ]
    return csv_text(header, lines)


def _json(rows: Sequence[TrainingTime]) -> str:
    return json_text([asdict(row) for row in rows])


TIME_FORMATS: dict[str, Callable[[Sequence[TrainingTime]], str]] = {
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}
"""Every format that the table can be written in."""
