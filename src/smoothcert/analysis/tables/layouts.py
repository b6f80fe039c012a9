"""Layouts of a table by name: what each shows of the same runs."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.tables.best import best_rows, render_best
from smoothcert.analysis.tables.listing import render_table
from smoothcert.analysis.tables.paper import paper_table
from smoothcert.analysis.tables.paper_formats import render_paper_table
from smoothcert.analysis.tables.training_time import render_training_times, training_time
from smoothcert.registry import check_name
from smoothcert.runs import Run

LAYOUTS = ("runs", "paper", "best", "training")
"""A row for each run; methods by σ as papers print them; the best of each method's runs; what training took."""


def render_layout(runs: Sequence[Run], radii_as_typed: Sequence[str], layout: str, format: str) -> str:
    """The runs in one of :data:`LAYOUTS`, as text."""
    check_name("layout", layout, LAYOUTS)
    radii = [float(radius) for radius in radii_as_typed]
    if layout == "paper":
        return render_paper_table(paper_table(runs, radii_as_typed), format)
    if layout == "best":
        return render_best(best_rows(runs, radii), radii_as_typed, runs[0].norm, format)
    if layout == "training":
        return render_training_times([training_time(run) for run in runs], format)
    return render_table([summarise(run, radii) for run in runs], radii_as_typed, format)
