"""Certified accuracy against the size of the certified region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smoothcert.analysis.about import dataset_of, levels_of, sigma_mark
from smoothcert.analysis.figures import check_picture_path
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, partial_inputs
from smoothcert.analysis.plots.sheets import draw_steps, dress_accuracy, new_sheet
from smoothcert.analysis.plots.steps import Curve, step_curve
from smoothcert.analysis.tables.naming import check_one_dataset
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.plain_text import norm_name
from smoothcert.runs import Run

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


def certified_areas(run: Run, dimension: int) -> Curve:
    """Σ ln a_i of each right answer's certified region, ascending: D ln r, r the radius of the ball of that volume.

    Answers with nothing certified have none. The log-volume is this plus a constant of dimension and norm.
    """
    radii = np.array(
        [
            record.volume_radius or record.radius
            for record in run.records
            if record.correct and record.radius > 0
        ],
        dtype=np.float64,
    )
    return np.sort(dimension * np.log(radii))


@register(
    "area",
    "certified accuracy against the size of the certified region",
    options={"dimension": "how many numbers an input has (default: from the name of the data set)"},
)
def plot_area(runs: Sequence[Run], out: Path, width: str = "page", dimension: int | None = None) -> None:
    """Draw certified accuracy against certified area; the upper axis has the radius of the ball of that volume."""
    check_picture_path(out)
    summaries = checked(runs)
    check_one_dataset(runs)
    dimension = input_dimension(runs, dimension)
    areas = [certified_areas(run, dimension) for run in runs]
    largest = [float(each[-1]) for each in areas if each.size]
    if not largest:
        raise InvalidValueError(
            "no run certified a right answer with a radius above 0: there is no volume to draw"
        )
    norm = summaries[0].norm
    right = max(largest)
    left = right - dimension * math.log(_SPAN)
    labels = [_label(run, each) for run, each in zip(runs, areas)]
    with new_sheet(out, width, labels, top=0.5) as sheet:
        (axes,) = sheet.panels
        handles = []
        for k, (run, each) in enumerate(zip(runs, areas)):
            sizes, accuracy = step_curve(
                each, len(run.records), start=min(left, float(each[0])) if each.size else left
            )
            handles.append(draw_steps(axes, sizes, accuracy, k, sheet.look.line))
        axes.set_xlim(left, right + 0.02 * (right - left))
        axes.set_xlabel(f"certified area: Σ ln of the region's {dimension} semi-axes")
        dress_accuracy(axes)
        above = axes.secondary_xaxis("top")
        radii = _radius_ticks(math.exp(left / dimension), math.exp(right / dimension))
        above.set_xticks([dimension * math.log(r) for r in radii], [f"{r:g}" for r in radii])
        above.set_xlabel(f"radius of the {norm_name(norm)} ball of the same volume")
        above.tick_params(length=3, width=0.6)
        sheet.add_legend(handles)


def _label(run: Run, areas: Curve) -> str:
    """Name, σ, and the mean area of what was certified; not the ACR, which is about radii."""
    plan = run.manifest.plan
    sigma = plan.sigma
    least = plan.least_sigma
    parts = [
        None if sigma is None else f"σ = {sigma:.3g}{sigma_mark(None, None, levels_of(run))}",
        "geometric mean" if least is not None and least != sigma else None,
        f"mean area {areas.mean():.1f}" if areas.size else "nothing certified",
        partial_inputs(run),
    ]
    return f"{run.name}  ({', '.join(part for part in parts if part)})"


def _radius_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [factor * 10.0**power for power in powers for factor in _TOP_TICKS]
    return [round(radius, 12) for radius in every if low <= radius <= high]
