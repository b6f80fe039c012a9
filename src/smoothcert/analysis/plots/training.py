"""How training went: a figure of each epoch, a line for each training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.sheets import COLOURS, DASHES, MARKERS, new_sheet
from smoothcert.errors import InvalidValueError
from smoothcert.registry import check_name
from smoothcert.runs.epochs import EpochMetrics

Figure = Literal["acr", "accuracy", "loss", "learning_rate"]

_MOST_MARKED = 40
_AXES: dict[Figure, str] = {
    "acr": "ACR of some validation inputs",
    "accuracy": "noisy accuracy of the base classifier (%)",
    "loss": "loss",
    "learning_rate": "learning rate",
}


@register(
    "training",
    "the ACR, say, over the epochs of training runs",
    reads="trainings",
    options={"figure": "what is drawn"},
)
def plot_training(
    trainings: Sequence[tuple[str, Sequence[EpochMetrics]]],
    out: Path,
    width: str = "page",
    figure: Figure | None = None,
) -> None:
    """Draw each (name, epochs) as a line; the ACR where all have one, unless another figure is named."""
    if not trainings:
        raise InvalidValueError("name at least one training run")
    measured = all(_points(epochs, "acr") for _, epochs in trainings)
    chosen: Figure = figure or ("acr" if measured else "accuracy")
    check_name("figure", chosen, get_args(Figure))
    lines = [(name, epochs, _points(epochs, chosen)) for name, epochs in trainings]
    for name, _, points in lines:
        if not points:
            raise InvalidValueError(f"{name} has no ACR: train with --acr-every, or draw --figure accuracy")
    with new_sheet(out, width, [_label(*line, chosen) for line in lines]) as sheet:
        (axes,) = sheet.panels
        handles = []
        for k, (_, _, points) in enumerate(lines):
            handles += axes.plot(
                *zip(*points),
                color=COLOURS[k % len(COLOURS)],
                linestyle=DASHES[k % len(DASHES)],
                marker=MARKERS[k % len(MARKERS)] if len(points) <= _MOST_MARKED else None,
                markersize=3.5,
                linewidth=sheet.look.line,
            )
        axes.set_xlabel("epochs")
        axes.set_xlim(left=0)
        axes.set_ylabel(_AXES[chosen])
        if chosen == "learning_rate":
            axes.set_yscale("log")
        elif chosen != "loss":  # which may be negative
            axes.set_ylim(bottom=0)
        sheet.add_legend(handles)


def _points(epochs: Sequence[EpochMetrics], figure: Figure) -> list[tuple[int, float]]:
    """(epoch, value) where there is one, accuracy in percent."""
    unit = 100 if figure == "accuracy" else 1
    return [(one.epoch, unit * value) for one in epochs if (value := getattr(one, figure)) is not None]


def _label(
    name: str, epochs: Sequence[EpochMetrics], points: Sequence[tuple[int, float]], figure: Figure
) -> str:
    """A line's name, with its last value, when that was, and the inputs that it is of."""
    epoch, last = points[-1]
    shown = {"acr": f"ACR {last:.3f}", "accuracy": f"{last:.1f} %"}.get(figure, f"{last:.3g}")
    on = f" on {epochs[-1].validated_on} inputs" if figure in ("acr", "accuracy") else ""
    return f"{name}: {shown}{on} after epoch {epoch}"
