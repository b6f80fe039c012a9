"""Certified accuracy against radius: runs with their confidence bands, means over seeds, and the envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.analysis.ceiling import radius_ceiling
from smoothcert.analysis.evidence import is_sample
from smoothcert.analysis.figures import GREY, INK, check_picture_path
from smoothcert.analysis.metrics import check_same_indices, check_same_norm
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, radius_label, run_labels, told_apart
from smoothcert.analysis.plots.sheets import (
    COLOURS,
    LIMIT_DASHES,
    Look,
    draw_steps,
    dress_accuracy,
    new_sheet,
)
from smoothcert.analysis.plots.steps import (
    Curve,
    certified_accuracy_steps,
    envelope_steps,
    pointwise_band,
)
from smoothcert.analysis.seeds import SeedGroup, mean_curve, summarise_seeds
from smoothcert.analysis.tables.naming import check_one_dataset, check_one_protocol
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Run

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MOST_BANDS = 4  # more of them hide one another
_CEILING = "largest radius that n and α allow"
_BAND = "band: 95 % confidence interval over the test set, for each radius alone"
_SOME_BANDS = " (none where inputs depend on one another or aren't all done)"
_SEED_BAND = "band: one standard deviation over seeds"


@dataclass(frozen=True)
class _Drawn:
    label: str
    radii: Curve
    accuracy: Curve
    band: tuple[Curve, Curve] | None
    ceiling: float | None


@register(
    "accuracy",
    "certified accuracy against radius, one curve per run",
    options={
        "band": "95 % confidence band over the test set, for each radius alone (default: for up to four runs)"
    },
)
def plot_certified_accuracy(
    runs: Sequence[Run], out: Path, width: str = "page", band: bool | None = None
) -> None:
    """Draw every run's certified accuracy against the radius into ``out`` (.png, .svg or .pdf).

    A thin dotted line marks the ceiling: the radius a unanimous vote would get with the run's n and α. ``band`` adds
    95 % Clopper–Pearson limits over the test set at each radius (default: for up to four runs); a run whose inputs
    depend on one another, or aren't all done, gets none, since none would hold.
    """
    check_picture_path(out)
    summaries = checked(runs)
    banded = len(runs) <= _MOST_BANDS if band is None else band
    heading, labels = run_labels(runs, summaries)
    curves = []
    for run, label in zip(runs, labels):
        radii, accuracy = certified_accuracy_steps(run.records)
        limits = pointwise_band(accuracy, len(run.records)) if banded and is_sample(run) else None
        curves.append(_Drawn(label, radii, accuracy, limits, radius_ceiling(run)))
    words = _BAND + ("" if all(map(is_sample, runs)) else _SOME_BANDS)
    _draw(curves, summaries[0].norm, out, width, words, heading)


def plot_seed_groups(groups: Sequence[SeedGroup], out: Path, width: str = "page") -> None:
    """Draw each group's mean certified accuracy against the radius, in a band of one standard deviation."""
    check_picture_path(out)
    if not groups:
        raise InvalidValueError("a plot needs at least one group of runs, got none")
    summaries = [summarise_seeds(group, [0.0]) for group in groups]
    check_same_norm([(summary.method, summary.norm) for summary in summaries])
    curves = []
    for group, summary, data in zip(groups, summaries, told_apart(summaries)):
        on = "" if data is None else f"{data}, "
        label = f"{group.method}  ({on}σ = {group.sigma:g}, ACR {summary.acr.text(3)})"
        radii, mean, spread = mean_curve(group.runs)
        band = (mean - spread, mean + spread) if summary.seeds > 1 else None
        curves.append(_Drawn(label, radii, mean, band, radius_ceiling(group.runs[0])))
    _draw(curves, summaries[0].norm, out, width, _SEED_BAND)


@register("envelope", "the best run at each radius, over the runs; runs of one label share an envelope")
def plot_envelope(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw the highest certified accuracy of any run at each radius, over the runs themselves.

    Where several runs are called the same (``--labels``), each name gets an envelope of its own, without its runs.
    """
    check_picture_path(out)
    summaries = checked(runs)
    check_one_dataset(runs)
    check_same_indices(runs)
    check_one_protocol(runs)
    if shared := _of_one_label(runs):
        _draw_envelopes(shared, summaries[0].norm, out, width)
        return
    heading, named = run_labels(runs, summaries)
    labels = [f"envelope: the best of {len(runs)} runs at each radius, chosen on these inputs", *named]
    with new_sheet(out, width, labels, heading=heading) as sheet:
        (axes,) = sheet.panels
        handles: list[Artist] = []
        reach = 0.0
        for k, run in enumerate(runs):
            radii, accuracy = certified_accuracy_steps(run.records)
            handles.append(draw_steps(axes, radii, accuracy, k, 0.55 * sheet.look.line))
            reach = max(reach, float(radii[-1]))
        radii, best = envelope_steps(runs)
        # Pale and broad behind the runs: a line on top would hide which of them it is.
        (envelope,) = axes.step(
            radii, 100 * best, where="post", color=INK, alpha=0.28, linewidth=4 * sheet.look.line, zorder=1.5
        )
        _dress(axes, summaries[0].norm, reach)
        sheet.add_legend([envelope, *handles])


def _of_one_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each label, if they were given labels that several of them share; else empty."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if not run.alias:
            return {}
        found.setdefault(run.alias, []).append(run)
    return found if len(found) < len(runs) else {}


def _draw_envelopes(groups: Mapping[str, Sequence[Run]], norm: str, out: Path, width: str) -> None:
    labels = [f"{name}  (the best of {len(runs)} at each radius)" for name, runs in groups.items()]
    heading = "envelopes, chosen on these inputs"
    with new_sheet(out, width, labels, heading=heading) as sheet:
        (axes,) = sheet.panels
        curves = [envelope_steps(runs) for runs in groups.values()]
        handles = [draw_steps(axes, *curve, k, sheet.look.line) for k, curve in enumerate(curves)]
        _dress(axes, norm, max(float(radii[-1]) for radii, _ in curves))
        sheet.add_legend(handles)


def _draw(
    curves: Sequence[_Drawn], norm: str, out: Path, width: str, band_words: str, heading: str | None = None
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    reach = max(max(float(curve.radii[-1]), curve.ceiling or 0.0) for curve in curves)
    has_band = any(curve.band is not None for curve in curves)
    has_ceiling = any(curve.ceiling is not None for curve in curves)
    notes = [words for words, there in ((band_words, has_band), (_CEILING, has_ceiling)) if there]
    labels = [*(curve.label for curve in curves), *notes]
    with new_sheet(out, width, labels, heading=heading) as sheet:
        (axes,) = sheet.panels
        handles: list[Artist] = [_paint(axes, curve, k, sheet.look) for k, curve in enumerate(curves)]
        if has_band:
            handles.append(Patch(facecolor=GREY, alpha=0.3, linewidth=0))
        if has_ceiling:
            handles.append(Line2D([], [], color=GREY, linewidth=0.9, linestyle=LIMIT_DASHES))
        _dress(axes, norm, reach)
        sheet.add_legend(handles)


def _paint(axes: Axes, curve: _Drawn, k: int, look: Look) -> Artist:
    colour = COLOURS[k % len(COLOURS)]
    if curve.band is not None:
        low, high = (np.clip(100 * limit, 0.0, 100.0) for limit in curve.band)
        axes.fill_between(curve.radii, low, high, step="post", color=colour, alpha=0.2, lw=0)
    if curve.ceiling is not None:
        axes.axvline(curve.ceiling, color=colour, linewidth=0.9, linestyle=LIMIT_DASHES, zorder=1)
    return draw_steps(axes, curve.radii, curve.accuracy, k, look.line)


def _dress(axes: Axes, norm: str, reach: float) -> None:
    axes.set_xlim(0.0, 1.04 * reach if reach > 0 else 1.0)
    axes.set_xlabel(radius_label(norm))
    dress_accuracy(axes)
