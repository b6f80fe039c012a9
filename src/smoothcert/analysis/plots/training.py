"""How training and fits went: a figure of each epoch, and what ladders of fitted noise trade for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from smoothcert.analysis.metrics import check_same_norm
from smoothcert.analysis.plots.drawing import LIMIT, check_picture_path, line_style, marker_style, new_sheet
from smoothcert.analysis.plots.kinds import register
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name
from smoothcert.runs.side_files import EpochMetrics

Figure = Literal["acr", "accuracy", "loss", "learning_rate"]
Fact: TypeAlias = tuple[str, str | None]
"""What it is about, and how a picture says it; None where the run doesn't state it."""

_MOST_MARKED, _MOST_LADDERS = 40, 7
_AXES: dict[Figure, str] = {
    "acr": "ACR of validation inputs",
    "accuracy": "noisy accuracy of the base classifier (%)",
    "loss": "loss",
    "learning_rate": "learning rate",
}


class Training(NamedTuple):
    """What a picture calls a training run, its epochs, and the data set that it states."""

    name: str
    epochs: Sequence[EpochMetrics]
    dataset: str | None = None


@dataclass(frozen=True)
class _Line:
    """Epochs of one run whose figure was measured in one way: a line joins nothing else."""

    name: str
    dataset: str | None
    epochs: Sequence[EpochMetrics]
    figure: Figure

    @property
    def points(self) -> list[tuple[int, float]]:
        """(epoch, value), accuracy in percent."""
        unit = 100 if self.figure == "accuracy" else 1
        return [(epoch.epoch, unit * getattr(epoch, self.figure)) for epoch in self.epochs]

    def facts(self) -> list[Fact]:
        """What the figure rests on."""
        return [("data set", self.dataset), *_measured(self.epochs[0], self.figure)]

    def label(self, alone: Sequence[Fact]) -> str:
        """Its name, its last value, when that was, the inputs that it is of, and what is its ``own``."""
        epoch, last = self.points[-1]
        shown = {"acr": f"ACR {last:.3f}", "accuracy": f"{last:.1f} %"}.get(self.figure, f"{last:.3g}")
        on = f" on {self.epochs[-1].validated_on} inputs" if self.figure in ("acr", "accuracy") else ""
        return f"{self.name}: {shown}{on} after epoch {epoch}" + (f" ({_in_words(alone)})" if alone else "")


@register(
    "training",
    "the ACR, say, over the epochs of training runs",
    reads="trainings",
    options={"figure": "what is drawn"},
)
def plot_training(
    trainings: Sequence[tuple[str, Sequence[EpochMetrics]] | tuple[str, Sequence[EpochMetrics], str | None]],
    out: Path,
    width: str = "page",
    figure: Figure | None = None,
) -> None:
    """Draw each :class:`Training` as a line; the ACR where all have one, unless another figure is named.

    Where a run's ACR or accuracy is measured otherwise from some epoch on, another line begins. What all lines rest on
    stands above their names, the rest beside each. ACRs in different norms are refused.
    """
    if not trainings:
        raise InvalidValueError("name at least one training run")
    named = [Training(*training) for training in trainings]
    measured = all(any(epoch.acr is not None for epoch in training.epochs) for training in named)
    chosen: Figure = figure or ("acr" if measured else "accuracy")
    check_name("figure", chosen, get_args(Figure))
    lines = [line for training in named for line in _lines(training, chosen)]
    axis = _AXES[chosen] if chosen != "acr" else f"{_AXES[chosen]}{_common_norm(lines)}"
    heading, labels = _said(lines)
    check_picture_path(out)
    from matplotlib.ticker import MaxNLocator

    with new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        entries = []
        for k, (line, label) in enumerate(zip(lines, labels)):
            marked = len(line.points) <= _MOST_MARKED
            style = line_style(k) | (marker_style(k) if marked else {})
            (handle,) = axes.plot(*zip(*line.points), clip_on=False, **style)  # marks at 0 are whole
            entries.append((handle, label))
        axes.set(xlabel="epochs", xlim=(0, None), ylabel=axis)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if chosen == "learning_rate":
            # A ramp may begin at 0, which has no logarithm.
            if all(rate > 0 for line in lines for _, rate in line.points):
                axes.set_yscale("log")
        elif chosen != "loss":  # which may be negative
            axes.set_ylim(bottom=0)
        sheet.add_legend(entries, heading)


def _measured(one: EpochMetrics, figure: Figure) -> list[Fact]:
    """How an epoch's figure was measured."""
    sigma = ("σ", None if one.sigma is None else f"σ = {one.sigma:g}")
    if figure == "accuracy":
        return [sigma, ("norm", None if one.norm is None else f"{norm_name(one.norm)} noise")]
    if figure == "acr":
        inputs = None if one.acr_inputs is None else f"{one.acr_inputs} inputs"
        votes = None if one.acr_votes is None else f"{one.acr_votes} votes each"
        return [("inputs", inputs), ("votes", votes), sigma]
    return []


def _in_words(facts: Sequence[Fact]) -> str:
    """Those that are stated, then the names of those that aren't."""
    stated = [text for _, text in facts if text is not None]
    missing = [name for name, text in facts if text is None]
    return ", ".join([*stated, *([f"{' and '.join(missing)} not stated"] if missing else [])])


def _lines(training: Training, figure: Figure) -> list[_Line]:
    """The run's line, or several where it was measured in several ways; refused where there is nothing to draw."""
    drawn = [epoch for epoch in training.epochs if getattr(epoch, figure) is not None]
    if not drawn:
        raise InvalidValueError(
            f"{training.name} has no ACR: use --acr-every in training or --figure accuracy"
        )
    parts = [list(part) for _, part in groupby(drawn, lambda one: (one.validated_on, _measured(one, figure)))]
    lines = []
    for part in parts:
        first, last = part[0].epoch, part[-1].epoch
        span = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        name = training.name if len(parts) == 1 else f"{training.name}, {span}"
        lines.append(_Line(name, training.dataset, part, figure))
    return lines


def _said(lines: Sequence[_Line]) -> tuple[str | None, list[str]]:
    """What all lines rest on, as a heading, and each line's label with what it alone rests on."""
    facts = [line.facts() for line in lines]
    shared = [len(set(column)) == 1 for column in zip(*facts)]
    # An ACR can't be read without its inputs and votes: that no run states them is said, too.
    common = [
        (name, text)
        for (name, text), same in zip(facts[0], shared)
        if same and (text is not None or name in ("inputs", "votes"))
    ]
    alone = [[fact for fact, same in zip(each, shared) if not same] for each in facts]
    return _in_words(common) or None, [line.label(each) for line, each in zip(lines, alone)]


def _common_norm(lines: Sequence[_Line]) -> str:
    """`` (ℓ2)``, as far as the lines state it; different norms are refused."""
    norms = [(line.name, norm) for line in lines if (norm := line.epochs[0].norm) is not None]
    check_same_norm(norms)
    return f" ({norm_name(norms[0][1])})" if norms else ""


@register(
    "clean-accuracy",
    "clean accuracy against mean certified area, a line for each ladder of fits",
    reads="ladders",
)
def plot_clean_accuracy(ladders: Sequence[tuple[str, Sequence[Any]]], out: Path, width: str = "page") -> None:
    """Draw each (name, points of fits): the Pareto front as a line, its starting constants dotted, the rest as dots."""
    if not 0 < len(ladders) <= _MOST_LADDERS:
        raise InvalidValueError(f"pictures hold 1 to {_MOST_LADDERS} ladders, got {len(ladders)}: name fewer")
    for name, points in ladders:
        if not any(point.kept for point in points):
            raise InvalidValueError(f"{name}: no sub-epoch certified anything, so there is no point to draw")
    with new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        entries = []
        for k, (name, points) in enumerate(ladders):
            style = marker_style(k)
            constant = style | {"markerfacecolor": "white", "linestyle": LIMIT["linestyle"]}
            for label, look, places in (
                ("fitted (Pareto front)", style, [p for p in points if p.kept]),
                ("the same σ everywhere", constant, [p for p in points if p.sub_epoch == 0]),
            ):
                at = sorted((point.area, 100 * point.accuracy) for point in places)
                (handle,) = axes.plot(*(zip(*at) if at else ([], [])), **look)
                entries.append((handle, f"{name}: {label}"))
            rest = [(p.area, 100 * p.accuracy) for p in points if p.sub_epoch > 0 and not p.kept]
            axes.plot(*(zip(*rest) if rest else ([], [])), ".", color=style["color"], alpha=0.35)
        axes.set(xlabel="mean certified area: Σ ln of the region's semi-axes", ylabel="clean accuracy (%)")

        sheet.add_legend(entries)
