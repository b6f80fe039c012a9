"""Radii of a classifier whose σ follows the input by levels: which level each input has, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.about import levels_of
from smoothcert.analysis.figures import GREY, INK, check_picture_path
from smoothcert.analysis.levels import LIMITS, decided_levels
from smoothcert.analysis.metrics import counted_radii
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, partial_inputs, radius_label
from smoothcert.analysis.plots.sheets import COLOURS, add_title, new_sheet
from smoothcert.analysis.plots.sigma import check_panels
from smoothcert.analysis.tables.naming import check_one_dataset
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Run, read_run

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MARKERS = {"home": "o", "level": "^", "chooser": "x"}


@dataclass(frozen=True)
class RankedRadii:
    """Right certified inputs from the largest radius down: of each its radius, its level, and what limits it."""

    radius: NDArray[np.float64]
    home: NDArray[np.int64]
    limit: NDArray[np.str_]
    inputs: int
    """How many there are in all."""

    @property
    def place(self) -> NDArray[np.float64]:
        """Of each the share of inputs up to it, in percent: where its radius lies on the axis."""
        return 100 * (np.arange(len(self.radius)) + 0.5) / self.inputs


def ranked_radii(run: Run) -> RankedRadii:
    """What the picture shows of a run; refused for one without levels."""
    evidence = decided_levels(run)
    if evidence is None:
        raise InvalidValueError(
            f"{run.path} has no σ levels; name a run made by certify --sigma-levels with a chooser"
        )
    counted = counted_radii(run.records)
    order = np.argsort(-counted, kind="stable")
    order = order[counted[order] > 0]
    home = np.array([one.home for one in evidence], dtype=np.int64)
    limit = np.array([one.limit for one in evidence], dtype=np.str_)
    return RankedRadii(counted[order], home[order], limit[order], len(counted))


@register(
    "levels",
    "runs whose σ follows the input by levels: radii by rank, coloured by level, marked by what limits them",
    options={"against": "a run on the same inputs, at one σ for instance, whose radii are drawn as a line"},
)
def plot_levels(runs: Sequence[Run], out: Path, width: str = "page", against: Path | None = None) -> None:
    """Draw each right certified input's radius, from the largest down, in the colour of its level.

    The mark says what keeps the radius from being larger: the input's own level, another that the chooser may come to,
    or the chooser. The share of inputs with at least a radius, the certified accuracy there, is read off below. With
    ``against``, the directory of another run, the same of its radii as a line.
    """
    check_picture_path(out)
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    checked(runs)
    check_panels(runs)
    found = [ranked_radii(run) for run in runs]
    sigmas = _common_levels(runs)
    other = None if against is None else read_run(against)
    limits = [name for name in LIMITS if any((one.limit == name).any() for one in found)]
    labels = [f"σ = {sigma:g}" for sigma in sigmas]
    labels += [f"limited by {LIMITS[name]}" for name in limits]
    if other is not None:
        for run in runs:
            check_one_dataset([run, other])
        checked([*runs, other])
        labels.append(f"radii of {other.name}")
    height = 1.0 if len(runs) == 1 else 0.6
    with new_sheet(out, width, labels, panels=len(runs), panel_height=height, top=0.28) as sheet:
        for axes, run, ranked in zip(sheet.panels, runs, found):
            if other is not None:
                _draw_other(axes, other, sheet.look.line)
            _draw(axes, ranked)
            add_title(axes, sheet.look, run.name, partial_inputs(run))
            axes.set_ylabel(radius_label(run.norm))
            axes.set_xlim(0.0, 100.0)
            axes.set_ylim(0.0, None)
        sheet.panels[-1].set_xlabel("inputs from the largest radius down (%)")
        marks: list[Artist] = [Patch(facecolor=COLOURS[k % len(COLOURS)]) for k in range(len(sigmas))]
        marks += [
            Line2D([], [], color=INK, marker=_MARKERS[name], linestyle="", markersize=4) for name in limits
        ]
        if other is not None:
            marks.append(Line2D([], [], color=GREY, linewidth=sheet.look.line))
        sheet.add_legend(marks)


def _common_levels(runs: Sequence[Run]) -> tuple[float, ...]:
    levels = {levels_of(run) for run in runs}
    if len(levels) > 1:
        named = "; ".join(" ".join(f"{sigma:g}" for sigma in one or ()) for one in sorted(levels, key=str))
        raise InvalidValueError(
            f"the runs have different σ levels ({named}): draw each in a picture of its own"
        )
    return levels.pop() or ()


def _draw(axes: Axes, ranked: RankedRadii) -> None:
    size = 4.0 if len(ranked.radius) > 400 else 14.0
    for name, marker in _MARKERS.items():
        of = ranked.limit == name
        colours = [COLOURS[level % len(COLOURS)] for level in ranked.home[of].tolist()]
        if colours:
            axes.scatter(
                ranked.place[of],
                ranked.radius[of],
                s=size,
                c=colours,
                marker=marker,
                linewidths=0.8,
                clip_on=False,
            )


def _draw_other(axes: Axes, other: Run, line: float) -> None:
    radii = np.sort(counted_radii(other.records))[::-1]
    shares = np.linspace(0.0, 100.0, len(radii) + 1)
    axes.stairs(radii, shares, color=GREY, linewidth=line, baseline=None)
