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
    json_text,
    markdown_table,
    sigma_text,
)
from smoothcert.analysis.tables.naming import method_of
from smoothcert.analysis.trained import SECONDS, stated_training
from smoothcert.errors import InvalidValueError
from smoothcert.registry import check_name
from smoothcert.runs import Run


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
    if not isinstance(epochs, int) or not isinstance(seconds, (int, float)) or epochs < 1:
        raise InvalidValueError(
            f"{run.path} doesn't say how long its model was trained: runs certified from a training run do, since they "
            "copy it; certify the model again, or leave the run out"
        )
    summary = summarise(run, [0.0])
    return TrainingTime(
        method_of(run), summary.sigma, epochs, float(seconds), summary.acr, summary.dataset, summary.split
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
            f"{row.acr:.3f}",
        ]
        for row in rows
    ]
    header = ["data", "method", "σ", "s/epoch", "epochs", "hours", "ACR"]
    note = "Time of training, validation after each epoch included, on the machine that trained:"
    return f"{note}\n\n{markdown_table(header, cells, text_columns={0, 1})}"


def _csv(rows: Sequence[TrainingTime]) -> str:
    lines = [
        [
            csv_escaped(row.method),
            *(row.sigma, row.epochs, row.seconds, row.acr),
            *(csv_escaped(text or "") for text in (row.dataset, row.split)),
        ]
        for row in rows
    ]
    return csv_text(["method", "sigma", "epochs", "seconds", "acr", "dataset", "split"], lines)


def _json(rows: Sequence[TrainingTime]) -> str:
    return json_text([asdict(row) for row in rows])


TIME_FORMATS: dict[str, Callable[[Sequence[TrainingTime]], str]] = {
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}
"""Every format that the table can be written in."""
