"""Certified accuracy against the radius, the size of the region or the changed categories: runs, seeds, envelopes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis import metrics
from smoothcert.analysis.changes import CertifiedChanges
from smoothcert.analysis.evidence import is_sample, radius_ceiling
from smoothcert.analysis.facts import dataset_of, levels_of, sigma_mark
from smoothcert.analysis.plots import drawing, kinds
from smoothcert.analysis.seeds import SeedGroup, check_one_dataset, check_one_protocol, summarise_seeds
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.plain_text import norm_name
from smoothcert.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MOST_BANDS = 3  # more of them hide one another
_CEILING = "largest radius that n and α allow"
_BAND = "band: 95 % confidence interval over the test set, for each radius alone"
_SOME_BANDS = " (none where inputs depend on one another or aren't all done)"
_SEED_BAND = "band: one standard deviation over seeds"
_DIMENSIONS = {
    "digits": 8 * 8,
    "mnist": 28 * 28,
    "fashion-mnist": 28 * 28,
    "cifar10": 3 * 32 * 32,
    "svhn": 3 * 32 * 32,
    "imagenet": 3 * 224 * 224,
    "kitti": 3 * 224 * 224,
}
_SPAN = 10.0  # from a tenth of the largest radius: the volume of a smaller one is 0 to any eye
_TOP_TICKS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


@dataclass(frozen=True)
class DrawnCurve:
    """A curve with what stands beside and around it."""

    label: str
    radii: metrics.Curve
    accuracy: metrics.Curve
    band: tuple[metrics.Curve, metrics.Curve] | None
    ceiling: float | None


@kinds.register(
    "accuracy",
    "certified accuracy against radius, one curve per run",
    options={"band": "95 % confidence band over the test set, for each radius alone (default: up to 3 runs)"},
)
def plot_certified_accuracy(
    runs: Sequence[Run], out: Path, width: str = "page", band: bool | None = None
) -> None:
    """Draw every run's certified accuracy against the radius into ``out`` (.png, .svg or .pdf).

    A thin dotted line marks the ceiling: the radius a unanimous vote would get with the run's n and α. ``band`` adds
    95 % Clopper–Pearson limits over the test set at each radius (default: for up to three runs); a run whose inputs
    depend on one another, or aren't all done, gets none, since none would hold.
    """
    drawing.check_picture_path(out)
    summaries = kinds.checked(runs)
    banded = len(runs) <= _MOST_BANDS if band is None else band
    heading, labels = kinds.run_labels(runs, summaries)
    curves = []
    for run, label in zip(runs, labels):
        radii, accuracy = metrics.certified_accuracy_steps(run.records)
        limits = metrics.pointwise_band(accuracy, len(run.records)) if banded and is_sample(run) else None
        curves.append(DrawnCurve(label, radii, accuracy, limits, radius_ceiling(run)))
    words = _BAND + ("" if all(map(is_sample, runs)) else _SOME_BANDS)
    draw_curves(curves, summaries[0].norm, out, width, words, heading)


def plot_seed_groups(groups: Sequence[SeedGroup], out: Path, width: str = "page") -> None:
    """Draw each group's mean certified accuracy against the radius, in a band of one standard deviation."""
    drawing.check_picture_path(out)
    if not groups:
        raise InvalidValueError("a plot needs at least one group of runs, got none")
    summaries = [summarise_seeds(group, [0.0]) for group in groups]
    metrics.check_same_norm([(summary.method, summary.norm) for summary in summaries])
    curves = []
    for group, summary, data in zip(groups, summaries, kinds.told_apart(summaries)):
        on = "" if data is None else f"{data}, "
        label = f"{group.method}  ({on}σ = {group.sigma:g}, ACR {summary.acr.text(3)})"
        radii, mean, spread = metrics.mean_curve(group.runs)
        band = (mean - spread, mean + spread) if summary.seeds > 1 else None
        curves.append(DrawnCurve(label, radii, mean, band, radius_ceiling(group.runs[0])))
    draw_curves(curves, summaries[0].norm, out, width, _SEED_BAND)


def draw_curves(
    curves: Sequence[DrawnCurve],
    norm: str,
    out: Path,
    width: str,
    band_words: str,
    heading: str | None = None,
) -> None:
    """Each curve over its band, with a dotted line at each ceiling."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    with drawing.new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        entries: list[tuple[Artist, str]] = []
        for k, curve in enumerate(curves):
            colour = drawing.COLOURS[k % len(drawing.COLOURS)]
            if curve.band is not None:
                low, high = (np.clip(100 * limit, 0.0, 100.0) for limit in curve.band)
                axes.fill_between(curve.radii, low, high, step="post", color=colour, alpha=0.2, lw=0)
            if curve.ceiling is not None:
                axes.axvline(curve.ceiling, zorder=1, **drawing.LIMIT | {"color": colour})
            entries.append((drawing.draw_steps(axes, curve.radii, curve.accuracy, k), curve.label))
        if any(curve.band is not None for curve in curves):
            entries.append((Patch(facecolor=drawing.GREY, alpha=0.3, linewidth=0), band_words))
        if any(curve.ceiling is not None for curve in curves):
            entries.append((Line2D([], [], **drawing.LIMIT), _CEILING))
        _set_radii(axes, norm, max(max(float(curve.radii[-1]), curve.ceiling or 0.0) for curve in curves))
        sheet.add_legend(entries, heading)


@kinds.register("envelope", "the best run at each radius, over the runs; runs of one label share an envelope")
def plot_envelope(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw the highest certified accuracy of any run at each radius, over the runs themselves.

    Where several runs are called the same (``--labels``), each name gets an envelope of its own, without its runs.
    """
    drawing.check_picture_path(out)
    summaries = kinds.checked(runs)
    check_one_dataset(runs)
    metrics.check_same_indices(runs)
    check_one_protocol(runs)
    if groups := _of_one_label(runs):
        heading: str | None = "envelopes, chosen on these inputs"
        labels = [f"{name}  (the best of {len(same)} at each radius)" for name, same in groups.items()]
        curves = [metrics.envelope_steps(same) for same in groups.values()]
    else:
        heading, labels = kinds.run_labels(runs, summaries)
        curves = [metrics.certified_accuracy_steps(run.records) for run in runs]
    with drawing.new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        thin = 1.0 if groups else 0.55
        entries: list[tuple[Artist, str]] = [
            (drawing.draw_steps(axes, *curve, k, linewidth=thin * sheet.size.line), label)
            for k, (curve, label) in enumerate(zip(curves, labels))
        ]
        if not groups:
            radii, best = metrics.envelope_steps(runs)
            # Pale and broad behind the runs: a line on top would hide which of them it is.
            broad: drawing.Style = {"color": drawing.INK, "alpha": 0.28, "zorder": 1.5}
            (handle,) = axes.step(radii, 100 * best, where="post", lw=4 * sheet.size.line, **broad)
            words = f"envelope: the best of {len(runs)} runs at each radius, chosen on these inputs"
            entries.insert(0, (handle, words))
        _set_radii(axes, summaries[0].norm, max(float(radii[-1]) for radii, _ in curves))
        sheet.add_legend(entries, heading)


@kinds.register(
    "area",
    "certified accuracy against the size of the certified region",
    options={"dimension": "how many numbers an input has (default: from the name of the data set)"},
)
def plot_area(runs: Sequence[Run], out: Path, width: str = "page", dimension: int | None = None) -> None:
    """Draw certified accuracy against certified area; the upper axis has the radius of the ball of that volume."""
    drawing.check_picture_path(out)
    summaries = kinds.checked(runs)
    check_one_dataset(runs)
    dimension = input_dimension(runs, dimension)
    areas = [certified_areas(run, dimension) for run in runs]
    largest = max((float(sizes[-1]) for sizes in areas if sizes.size), default=None)
    if largest is None:
        raise InvalidValueError("no run certified a right answer beyond radius 0: there is no volume to draw")
    left = largest - dimension * math.log(_SPAN)
    low, high = math.exp(left / dimension), math.exp(largest / dimension)
    with drawing.new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        entries = []
        for k, (run, sizes) in enumerate(zip(runs, areas)):
            start = min(left, float(sizes[0])) if sizes.size else left
            steps = metrics.step_curve(sizes, len(run.records), start)
            entries.append((drawing.draw_steps(axes, *steps, k), _area_label(run, sizes)))
        axes.set_xlim(left, largest + 0.02 * (largest - left))
        axes.set_xlabel(f"certified area: Σ ln of the region's {dimension} semi-axes")
        above = axes.secondary_xaxis("top")
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        every = (round(factor * 10.0**power, 12) for power in powers for factor in _TOP_TICKS)
        radii = [radius for radius in every if low <= radius <= high]
        above.set_xticks([dimension * math.log(r) for r in radii], [f"{r:g}" for r in radii])
        above.set_xlabel(f"radius of the {norm_name(summaries[0].norm)} ball of the same volume")
        sheet.add_legend(entries)


def input_dimension(runs: Sequence[Run], given: int | None = None) -> int:
    """How many numbers an input has: as given, else as a run's noise or the data set's name implies."""
    if given is not None:
        check_count("dimension", given)
        return given
    for run in runs:
        if isinstance(stated := run.manifest.plan.dimension, int):
            return stated
    names = {dataset_of(run) for run in runs}
    for name in names:
        if name in _DIMENSIONS:
            return _DIMENSIONS[name]
    raise InvalidValueError(
        f"how many numbers an input of {', '.join(sorted(map(str, names)))} has isn't known, and the volume depends on "
        "it; give --dimension (784 for 28×28 pictures)"
    )


def certified_areas(run: Run, dimension: int) -> metrics.Curve:
    """Σ ln a_i of each right answer's certified region, ascending: D ln r, r the radius of the ball of that volume.

    Answers with nothing certified have none. The log-volume is this plus a constant of dimension and norm.
    """
    certified = (record for record in run.records if record.correct and record.radius > 0)
    radii = np.array([record.volume_radius or record.radius for record in certified], dtype=np.float64)
    return np.sort(dimension * np.log(radii))


def _of_one_label(runs: Sequence[Run]) -> Mapping[str, Sequence[Run]]:
    """The runs of each label, if they were given labels that several of them share; else empty."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.alias, []).append(run)
    return groups if len(groups) < len(runs) and "" not in groups else {}


def _set_radii(axes: Axes, norm: str, reach: float) -> None:
    axes.set(xlim=(0.0, 1.04 * reach if reach > 0 else 1.0), xlabel=kinds.radius_label(norm))


def _area_label(run: Run, areas: metrics.Curve) -> str:
    """Name, σ, and the mean area of what was certified; not the ACR, which is about radii."""
    sigma, least = run.manifest.plan.sigma, run.manifest.plan.least_sigma
    parts = [
        None if sigma is None else f"σ = {sigma:.3g}{sigma_mark(None, None, levels_of(run))}",
        "geometric mean" if least is not None and least != sigma else None,
        f"mean area {areas.mean():.1f}" if areas.size else "nothing certified",
        kinds.partial_inputs(run),
    ]
    return f"{run.name}  ({', '.join(part for part in parts if part)})"


_MOST_CURVES = 8


@kinds.register(
    "changes", "certified accuracy of tables against ρ, a curve for each number of changed categories"
)
def plot_changes(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw a panel for each run: the share that is right and certified, against ρ, for d = 0, 1, … changes.

    Without numbers, against d alone.
    """
    drawing.check_picture_path(out)
    kinds.checked(runs)
    kinds.check_panels(runs)
    found = [CertifiedChanges.of(run) for run in runs]
    if any(one.theorem.scales is None for one in found):
        _plot_counts(found, out, width)
        return
    with drawing.new_sheet(out, width, len(found), share=0.9 if len(found) > 1 else 1.0) as sheet:
        rows = range(min(max(max(one.most for one in found), 0) + 1, _MOST_CURVES))
        entries = []
        farthest = max(float(one.reached(0).max()) for one in found)
        for panel, one in zip(sheet.panels, found):
            entries = [
                (
                    drawing.draw_steps(panel, *_steps(one.reached(d)), d),
                    f"d = {d}" + (" changed categories" if not d else ""),
                )
                for d in rows
            ]
            drawing.set_title(
                sheet, panel, one.run.name, f"β = {one.theorem.beta:g}", kinds.partial_inputs(one.run)
            )
            panel.set_xlim(0.0, 1.04 * farthest if farthest > 0 else 1.0)
        sheet.panels[-1].set_xlabel("ρ: how far numbers may move, ‖δ ⊘ σ‖₂")
        sheet.add_legend(entries)


def plot_choice(
    counts: Sequence[int],
    curves: Mapping[str, Sequence[NDArray[np.float64]]],
    out: Path,
    changes: int,
    move: float,
) -> None:
    """Draw a panel for each number of changed categories, in it a curve for each σ and β, the chosen one first.

    ``curves``: for each of ``counts`` how far the numbers of every row may move, in standard deviations.
    """
    drawing.check_picture_path(out)
    with drawing.new_sheet(out, "page", len(counts), share=0.6) as sheet:
        shown = dict(list(curves.items())[:_MOST_CURVES])
        entries: list[tuple[Artist, str]] = []
        for place, (panel, count) in enumerate(zip(sheet.panels, counts)):
            entries = [
                (drawing.draw_steps(panel, *_steps(reached[place]), k), name + (", chosen" if k == 0 else ""))
                for k, (name, reached) in enumerate(shown.items())
            ]
            drawing.set_title(sheet, panel, f"d = {count} changed categories")
            if count == changes:
                panel.axvline(move, color="0.5", linewidth=0.8)
        farthest = max(float(reached[0].max()) for reached in curves.values())
        sheet.panels[-1].set_xlim(0.0, 1.04 * farthest if farthest > 0 else 1.0)
        sheet.panels[-1].set_xlabel("how far numbers may move, in standard deviations of each")
        sheet.add_legend(entries)


def _plot_counts(found: Sequence[CertifiedChanges], out: Path, width: str) -> None:
    """One curve for each run, against the number of changes."""
    with drawing.new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        last = max(one.most for one in found) + 1
        entries = []
        for k, one in enumerate(found):
            share = np.array([one.share(d, 0.0) for d in range(last + 1)])
            entries.append((drawing.draw_steps(axes, np.arange(last + 1.0), share, k), one.run.name))
        axes.set_xlabel("d: changed values")
        sheet.add_legend(entries)


def _steps(reached: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From 0 on, where the share drops that is certified beyond ρ."""
    sizes = np.sort(reached[reached > 0])
    left = len(sizes) - np.arange(len(sizes) + 1)
    return np.concatenate([[0.0], sizes]), left / len(reached)
