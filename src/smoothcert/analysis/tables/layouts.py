"""Layouts of a table by name: what each shows of the same runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.tables.best import best_rows, render_best
from smoothcert.analysis.tables.listing import render_table
from smoothcert.analysis.tables.paper import paper_table
from smoothcert.analysis.tables.paper_formats import render_paper_table
from smoothcert.analysis.tables.training_time import render_training_times, training_time
from smoothcert.registry import check_name
from smoothcert.runs import Run


def render_layout(runs: Sequence[Run], radii_as_typed: Sequence[str], layout: str, format: str) -> str:
    """The runs in one of :data:`LAYOUTS`, as text."""
    check_name("layout", layout, LAYOUTS)
    return LAYOUTS[layout](runs, radii_as_typed, format)


def _each_run(runs: Sequence[Run], radii: Sequence[str], format: str) -> str:
    return render_table([summarise(run, _numbers(radii)) for run in runs], radii, format)


def _paper(runs: Sequence[Run], radii: Sequence[str], format: str) -> str:
    return render_paper_table(paper_table(runs, radii), format)


def _best(runs: Sequence[Run], radii: Sequence[str], format: str) -> str:
    return render_best(best_rows(runs, _numbers(radii)), radii, runs[0].norm, format)


def _training(runs: Sequence[Run], _radii: Sequence[str], format: str) -> str:
    return render_training_times([training_time(run) for run in runs], format)


def _numbers(radii: Sequence[str]) -> list[float]:
    return [float(radius) for radius in radii]


LAYOUTS: dict[str, Callable[[Sequence[Run], Sequence[str], str], str]] = {
    "runs": _each_run,
    "paper": _paper,
    "best": _best,
    "training": _training,
}
"""A row for each run; methods by σ as papers print them; the best of each method's runs; what training took."""
