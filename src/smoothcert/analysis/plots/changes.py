"""Certified accuracy over changed categories and moved numbers: of runs, and of a choice of σ and β."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.changes import CertifiedChanges
from smoothcert.analysis.plots.drawing import check_picture_path, draw_steps, new_sheet, set_title
from smoothcert.analysis.plots.kinds import check_panels, checked, partial_inputs, register
from smoothcert.runs.run import Run

_MOST_CURVES = 8


@register("changes", "certified accuracy of tables against ρ, a curve for each number of changed categories")
def plot_changes(runs: Sequence[Run], out: Path, width: str = "page") -> None:
    """Draw a panel for each run: the share that is right and certified, against ρ, for d = 0, 1, … changes.

    Without numbers, against d alone.
    """
    check_picture_path(out)
    checked(runs)
    check_panels(runs)
    found = [CertifiedChanges.of(run) for run in runs]
    if any(one.theorem.scales is None for one in found):
        _plot_counts(found, out, width)
        return
    with new_sheet(out, width, len(found), share=0.9 if len(found) > 1 else 1.0) as sheet:
        rows = range(min(max(max(one.most for one in found), 0) + 1, _MOST_CURVES))
        entries = []
        farthest = max(float(one.reached(0).max()) for one in found)
        for panel, one in zip(sheet.panels, found):
            entries = [
                (
                    draw_steps(panel, *_steps(one.reached(d)), d),
                    f"d = {d}" + (" changed categories" if not d else ""),
                )
                for d in rows
            ]
            set_title(sheet, panel, one.run.name, f"β = {one.theorem.beta:g}", partial_inputs(one.run))
            panel.set_xlim(0.0, 1.04 * farthest if farthest > 0 else 1.0)
        sheet.panels[-1].set_xlabel("ρ: how far numbers may move, ‖δ ⊘ σ‖₂")
        sheet.add_legend(entries)


def _plot_counts(found: Sequence[CertifiedChanges], out: Path, width: str) -> None:
    """One curve for each run, against the number of changes."""
    with new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        last = max(one.most for one in found) + 1
        entries = []
        for k, one in enumerate(found):
            share = np.array([one.share(d, 0.0) for d in range(last + 1)])
            entries.append((draw_steps(axes, np.arange(last + 1.0), share, k), one.run.name))
        axes.set_xlabel("d: changed values")
        sheet.add_legend(entries)


def _steps(reached: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From 0 on, where the share drops that is certified beyond ρ."""
    sizes = np.sort(reached[reached > 0])
    left = len(sizes) - np.arange(len(sizes) + 1)
    return np.concatenate([[0.0], sizes]), left / len(reached)
