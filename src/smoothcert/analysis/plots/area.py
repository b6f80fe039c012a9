"""Certified accuracy against the size of the certified region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smoothcert.analysis.figures import check_picture_path
from smoothcert.analysis.metrics import correct_radii
from smoothcert.analysis.plots.labels import checked, run_labels
from smoothcert.analysis.plots.sheets import COLOURS, DASHES, new_sheet
from smoothcert.analysis.plots.steps import Curve, step_curve
from smoothcert.analysis.tables.cells import norm_name
from smoothcert.analysis.tables.naming import check_one_dataset, dataset_of
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.regions import L1Ball, L2Ball
from smoothcert.runs import Run

_BALLS: dict[str, type[L1Ball] | type[L2Ball]] = {"l1": L1Ball, "l2": L2Ball}
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


def input_dimension(runs: Sequence[Run], given: int | None = None) -> int:
    """How many numbers an input has: as given, else as the data set's name implies."""
    if given is not None:
        check_count("dimension", given)
        return given
    names = {dataset_of(run) for run in runs}
    for name in names:
        if name in _DIMENSIONS:
            return _DIMENSIONS[name]
    raise InvalidValueError(
        f"how many numbers an input of {', '.join(sorted(map(str, names)))} has isn't known, and the volume depends on "
        "it; give --dimension (784 for 28×28 pictures)"
    )


def log_volumes(run: Run, dimension: int) -> Curve:
    """ln of the volume of each right answer's certified ball, ascending; those with radius 0 have none."""
    norm = run.manifest.plan["norm"]
    if norm not in _BALLS:
        raise InvalidValueError(f"{run.path}: the volume of a region in {norm} isn't known; l1 and l2 are")
    unit = _BALLS[norm](np.zeros(dimension), 1.0).log_volume()
    radii = correct_radii(run.records)
    return np.asarray(unit + dimension * np.log(radii[radii > 0]), dtype=np.float64)


def plot_area(runs: Sequence[Run], out: Path, width: str = "page", dimension: int | None = None) -> None:
    """Draw certified accuracy against ln of the certified volume; the upper axis has the radius of that ball."""
    check_picture_path(out)
    summaries = checked(runs)
    check_one_dataset(runs)
    dimension = input_dimension(runs, dimension)
    volumes = [log_volumes(run, dimension) for run in runs]
    largest = [float(each[-1]) for each in volumes if each.size]
    if not largest:
        raise InvalidValueError(
            "no run certified a right answer with a radius above 0: there is no volume to draw"
        )
    norm = summaries[0].norm
    unit = _BALLS[norm](np.zeros(dimension), 1.0).log_volume()
    right = max(largest)
    left = right - dimension * math.log(_SPAN)
    with new_sheet(out, width, run_labels(runs, summaries), top=0.5) as sheet:
        (axes,) = sheet.panels
        handles = []
        for k, (run, each) in enumerate(zip(runs, volumes)):
            sizes, accuracy = step_curve(
                each, len(run.records), start=min(left, float(each[0])) if each.size else left
            )
            handles += axes.step(
                sizes,
                100 * accuracy,
                where="post",
                color=COLOURS[k % len(COLOURS)],
                linestyle=DASHES[k % len(DASHES)],
                linewidth=sheet.look.line,
            )
        axes.set_xlim(left, right + 0.02 * (right - left))
        axes.set_ylim(0.0, 101.5)
        axes.set_yticks(range(0, 101, 20))
        axes.set_xlabel(f"ln volume of the certified {norm_name(norm)} ball (dimension {dimension})")
        axes.set_ylabel("certified accuracy (%)")
        above = axes.secondary_xaxis("top")
        radii = _radius_ticks(math.exp((left - unit) / dimension), math.exp((right - unit) / dimension))
        above.set_xticks([unit + dimension * math.log(r) for r in radii], [f"{r:g}" for r in radii])
        above.set_xlabel(f"{norm_name(norm)} radius")
        above.tick_params(length=3, width=0.6)
        sheet.add_legend(handles)


def _radius_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [factor * 10.0**power for power in powers for factor in _TOP_TICKS]
    return [round(radius, 12) for radius in every if low <= radius <= high]
