"""How σ is spread over the inputs of a run that chooses it for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import BLUE, GREY, INK, check_picture_path
from smoothcert.analysis.metrics import counted_radii
from smoothcert.analysis.plots.kinds import register
from smoothcert.analysis.plots.labels import checked, partial_inputs
from smoothcert.analysis.plots.sheets import LIMIT_DASHES, add_title, new_sheet
from smoothcert.analysis.tables.naming import check_one_dataset
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Run, read_run

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_BINS = 30
_MOST_PANELS = 8


def input_sigmas(run: Run) -> NDArray[np.float64]:
    """Each input's own σ; a run with one σ for all has nothing to show and is refused."""
    sigmas = run.records.sigma
    if sigmas.min() == sigmas.max():
        raise InvalidValueError(
            f"{run.path}: every input was certified with σ = {sigmas[0]:g}; name a run that chooses σ for each input"
        )
    return sigmas


def improved_sigmas(run: Run, against: Run) -> NDArray[np.float64]:
    """The σ of the inputs that ``run`` certifies farther than ``against`` does; refused on other inputs.

    A wrong answer and an abstention have no radius.
    """
    check_one_dataset([run, against])
    missing = np.setdiff1d(run.records.index, against.records.index)
    if len(missing):
        raise InvalidValueError(
            f"{against.path} has no input {missing[0]}, which {run.path} has; name a run of the same inputs"
        )
    places = np.searchsorted(against.records.index, run.records.index)
    return run.records.sigma[counted_radii(run.records) > counted_radii(against.records)[places]]


@register(
    "sigma",
    "how σ is spread over the inputs, for runs that choose it for each",
    options={
        "against": "a run on the same inputs; the inputs whose radius is larger than there are drawn apart"
    },
)
def plot_sigma(runs: Sequence[Run], out: Path, width: str = "page", against: Path | None = None) -> None:
    """Draw a histogram of the inputs' σ for each run, with its median and the σ of its plan.

    With ``against``, the directory of a run of one σ, also the share whose radius grew (data-dependent smoothing, 2022,
    figure 4).
    """
    check_picture_path(out)
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    checked(runs)
    fixed = None if against is None else read_run(against)
    check_panels(runs)
    sigmas = [input_sigmas(run) for run in runs]
    edges = np.linspace(min(s.min() for s in sigmas), max(s.max() for s in sigmas), _BINS + 1)
    margin = 0.03 * (edges[-1] - edges[0])
    plans = [run.manifest.plan for run in runs]
    stated = [plan.sigma if plan.sigma_levels is None else None for plan in plans]  # no level is the plan's
    labels = ["median", "σ of the plan"][: 1 + any(s is not None for s in stated)]
    grown = [None if fixed is None else improved_sigmas(run, fixed) for run in runs]
    if fixed is not None:
        labels.append(f"radius larger than in {fixed.name}")
    height = 1.0 if len(runs) == 1 else 0.5
    with new_sheet(out, width, labels, panels=len(runs), panel_height=height, top=0.28) as sheet:
        for axes, run, values, start, better in zip(sheet.panels, runs, sigmas, stated, grown):
            share = 100 * np.histogram(values, edges)[0] / values.size
            axes.stairs(share, edges, fill=True, facecolor=BLUE, alpha=0.45)
            axes.stairs(share, edges, color=BLUE, linewidth=0.7 * sheet.look.line)
            if better is not None:
                share = 100 * np.histogram(better, edges)[0] / values.size
                axes.stairs(share, edges, fill=True, facecolor=INK, alpha=0.55)
            axes.axvline(float(np.median(values)), color=INK, linewidth=sheet.look.line)
            if start is not None:
                axes.axvline(start, color=INK, linewidth=0.9, linestyle=LIMIT_DASHES)
            add_title(axes, sheet.look, run.name, partial_inputs(run))
            axes.set_ylabel("inputs (%)")
            axes.set_ylim(0.0, None)
            axes.set_xlim(edges[0] - margin, edges[-1] + margin)
        sheet.panels[-1].set_xlabel("σ of an input")
        marks: list[Artist] = [Line2D([], [], color=INK, linewidth=sheet.look.line)]
        if any(s is not None for s in stated):
            marks.append(Line2D([], [], color=GREY, linewidth=0.9, linestyle=LIMIT_DASHES))
        if fixed is not None:
            marks.append(Patch(facecolor=INK, alpha=0.55))
        sheet.add_legend(marks)


def check_panels(runs: Sequence[Run]) -> None:
    """Refuse more panels than a page holds."""
    if len(runs) > _MOST_PANELS:
        raise InvalidValueError(
            f"each run gets a panel of its own, at most {_MOST_PANELS} of them; got {len(runs)} runs: name fewer"
        )
