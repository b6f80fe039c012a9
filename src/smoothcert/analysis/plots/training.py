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
    measured = [name for name, epochs in trainings if any(one.acr is not None for one in epochs)]
    chosen: Figure = figure or ("acr" if len(measured) == len(trainings) else "accuracy")
    check_name("figure", chosen, get_args(Figure))
    missing = [name for name, _ in trainings if name not in measured]
    if chosen == "acr" and missing:
        raise InvalidValueError(f"{missing[0]} has no ACR: train with --acr-every, or draw --figure accuracy")
    with new_sheet(out, width, [_label(name, epochs, chosen) for name, epochs in trainings]) as sheet:
        (axes,) = sheet.panels
        handles = []
        for k, (_, epochs) in enumerate(trainings):
            points = [(one.epoch, getattr(one, chosen)) for one in epochs]
            points = [
                (epoch, 100 * value if chosen == "accuracy" else value)
                for epoch, value in points
                if value is not None
            ]
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
        else:
            axes.set_ylim(bottom=0)
        sheet.add_legend(handles)


def _label(name: str, epochs: Sequence[EpochMetrics], figure: Figure) -> str:
    """A line's name, with the last value and the inputs that it is of."""
    last = [value for one in epochs if (value := getattr(one, figure)) is not None][-1]
    shown = {"acr": f"ACR {last:.3f}", "accuracy": f"{100 * last:.1f} %"}.get(figure, f"{last:.3g}")
    on = f" on {epochs[-1].validated_on} inputs" if figure in ("acr", "accuracy") else ""
    return f"{name}: {shown}{on} after epoch {epochs[-1].epoch}"
