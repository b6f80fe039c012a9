"""Plots: certified accuracy against radius, one step curve for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILION,
    check_picture_path,
    new_figure,
    save_figure,
)
from smoothcert.analysis.gallery import plot_gallery
from smoothcert.analysis.metrics import (
    RunSummary,
    check_same_norm,
    correct_radii,
    summarise,
)
from smoothcert.analysis.seeds import SeedGroup, mean_curve, summarise_seeds
from smoothcert.bounds import BOUNDS
from smoothcert.certificates import largest_radius
from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES
from smoothcert.runs import Record, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "certified_accuracy_steps",
    "plot_certified_accuracy",
    "plot_gallery",
    "plot_seed_groups",
    "radius_ceiling",
]

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
# Five styles to seven colours: 35 runs before a pair repeats. Dotted is kept for the ceiling.
_DASHES = ("-", (0, (6, 2)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5)), (0, (10, 2, 3, 2)))
_CEILING_DASHES = (0, (1, 2))
_NORM_NAMES = {"l1": "ℓ1 radius", "l2": "ℓ2 radius"}
_WIDTH, _PLOT_HEIGHT, _LEGEND_LINE = 6.4, 3.7, 0.166  # inches


@dataclass(frozen=True)
class _Curve:
    label: str
    radii: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    spread: NDArray[np.float64] | None
    ceiling: float | None


def plot_certified_accuracy(runs: Sequence[Run], out: Path) -> None:
    """Draw every run's certified accuracy against the radius into ``out`` (.png, .svg or .pdf).

    A thin dotted line marks the ceiling: the radius a unanimous vote would get with the run's n and α.
    """
    check_picture_path(out)
    if not runs:
        raise InvalidValueError("a plot needs at least one run, got none; name a run")
    summaries = [summarise(run, [0.0]) for run in runs]
    check_same_norm([(summary.run, summary.norm) for summary in summaries])
    curves = [
        _Curve(_label(summary), *certified_accuracy_steps(run.records), None, radius_ceiling(run))
        for summary, run in zip(summaries, runs)
    ]
    _draw(curves, summaries[0].norm, out)


def plot_seed_groups(groups: Sequence[SeedGroup], out: Path) -> None:
    """Draw each group's mean certified accuracy against the radius, in a band of one standard deviation."""
    check_picture_path(out)
    if not groups:
        raise InvalidValueError("a plot needs at least one group of runs, got none")
    summaries = [summarise_seeds(group, [0.0]) for group in groups]
    check_same_norm([(summary.method, summary.norm) for summary in summaries])
    curves = []
    for group, summary in zip(groups, summaries):
        label = f"{group.method}  (σ = {group.sigma:g}, ACR {summary.acr.text(3)})"
        radii, mean, spread = mean_curve(group.runs)
        curves.append(
            _Curve(label, radii, mean, spread if summary.seeds > 1 else None, radius_ceiling(group.runs[0]))
        )
    _draw(curves, summaries[0].norm, out)


def _draw(curves: Sequence[_Curve], norm: str, out: Path) -> None:
    reach = max(max(float(curve.radii[-1]), curve.ceiling or 0.0) for curve in curves)
    legend_lines = len(curves) + any(curve.ceiling is not None for curve in curves)
    legend_height = _LEGEND_LINE * legend_lines + 0.1
    height = _PLOT_HEIGHT + legend_height
    with new_figure(_WIDTH, height) as figure:
        axes = figure.add_axes((0.095, (legend_height + 0.5) / height, 0.88, (_PLOT_HEIGHT - 0.62) / height))
        handles = []
        for k, curve in enumerate(curves):
            colour, dashes = _COLOURS[k % len(_COLOURS)], _DASHES[k % len(_DASHES)]
            accuracy = 100 * curve.accuracy
            handles += axes.step(
                curve.radii, accuracy, where="post", color=colour, linewidth=1.5, linestyle=dashes
            )
            if curve.spread is not None:
                spread = 100 * curve.spread
                axes.fill_between(
                    curve.radii,
                    accuracy - spread,
                    accuracy + spread,
                    step="post",
                    color=colour,
                    alpha=0.2,
                    lw=0,
                )
            if curve.ceiling is not None:
                axes.axvline(curve.ceiling, color=colour, linewidth=0.9, linestyle=_CEILING_DASHES, zorder=1)
        _dress(axes, norm, reach)
        _add_legend(axes, handles, [curve.label for curve in curves], legend_lines, height)
        save_figure(figure, out)


def certified_accuracy_steps(
    records: Sequence[Record],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radii at which certified accuracy drops, from 0 on, and its value (0 to 1) beyond each of them."""
    certified = correct_radii(records)
    jumps = np.unique(certified)
    left = certified.size - np.searchsorted(certified, jumps, side="right")
    radii = np.concatenate([[0.0], jumps])
    return radii, np.concatenate([[certified.size], left]) / len(records)


def radius_ceiling(run: Run) -> float | None:
    """The largest radius the run's n and α allow; None if it doesn't state them or σ differs by input."""
    plan = run.manifest.plan
    sigma, n, alpha = plan.get("sigma"), plan.get("n"), plan.get("alpha")
    if sigma is None or n is None or alpha is None:
        return None
    if plan.get("noise") not in NOISES or plan.get("bound") not in BOUNDS:
        return None
    if any(record.sigma != sigma for record in run.records):
        return None
    noise = NOISES[plan["noise"]](sigma)  # type: ignore[call-arg]
    return largest_radius(noise, BOUNDS[plan["bound"]], n, alpha)


def _label(summary: RunSummary) -> str:
    parts = [
        None if summary.sigma is None else f"σ = {summary.sigma:g}",
        summary.bound,
        f"ACR {summary.acr:.3f}",
    ]
    return f"{summary.run}  ({', '.join(part for part in parts if part)})"


def _dress(axes: Axes, norm: str, reach: float) -> None:
    axes.set_xlim(0.0, 1.04 * reach if reach > 0 else 1.0)
    axes.set_ylim(0.0, 101.5)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xlabel(_NORM_NAMES.get(norm, f"{norm} radius"))
    axes.set_ylabel("certified accuracy (%)")
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3, width=0.6)


def _add_legend(axes: Axes, handles: list[Line2D], labels: list[str], lines: int, height: float) -> None:
    """Below the axes, where it hides no curve."""
    from matplotlib.lines import Line2D

    figure = axes.figure
    if lines > len(labels):
        handles = [*handles, Line2D([], [], color=GREY, linewidth=0.9, linestyle=_CEILING_DASHES)]
        labels = [*labels, "largest radius that n and α allow"]
    legend = figure.legend(
        handles,
        [str(k) for k in range(len(labels))],
        loc="lower left",
        bbox_to_anchor=(0.08, 0.05 / height),
        frameon=False,
        handlelength=3.6,
        labelspacing=0.35,
        borderpad=0.0,
        borderaxespad=0.0,
        fontsize=8.5,
    )
    # Set afterwards and without mathematics: a legend drops names that begin with "_" and typesets "$".
    for text, label in zip(legend.get_texts(), labels):
        text.set_parse_math(False)
        text.set_text(label)
