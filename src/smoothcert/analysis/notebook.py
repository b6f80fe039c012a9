"""What people do with runs in a notebook: read one, see a table of several, draw their curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from smoothcert.analysis.layouts import render_table
from smoothcert.analysis.plots.curves import plot_certified_accuracy
from smoothcert.analysis.tables import default_radii, parse_radii
from smoothcert.errors import InvalidValueError
from smoothcert.runs.publishing import local_run
from smoothcert.runs.run import Run, read_run

RunOrPath = Run | str | Path


def load_run(path: str | Path) -> Run:
    """A run's statement and records, checked while they are read; finished or not, or published (``s3://…``)."""
    return read_run(path if isinstance(path, Path) else local_run(path))


def table(
    runs: RunOrPath | Sequence[RunOrPath],
    radii: Sequence[float] | str | None = None,
    *,
    layout: Literal["runs", "paper", "best", "training"] = "runs",
    format: str = "markdown",
) -> str:
    """Certified accuracies and ACR as text, as ``smoothcert table`` prints them."""
    read = _all(runs)
    if radii is None:
        typed = default_radii(read)
    else:
        typed = parse_radii(
            radii if isinstance(radii, str) else ",".join(f"{radius:.15g}" for radius in radii)
        )
    return render_table(read, typed, layout, format)


def plot_curves(
    runs: RunOrPath | Sequence[RunOrPath], out: str | Path, *, width: str = "page", band: bool | None = None
) -> Path:
    """Certified accuracy against the radius, drawn into ``out`` (.png, .svg or .pdf), whose path comes back."""
    plot_certified_accuracy(_all(runs), Path(out), width, band)
    return Path(out)


def _all(runs: RunOrPath | Sequence[RunOrPath]) -> list[Run]:
    listed = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if not listed:
        raise InvalidValueError("give at least one run, or its path")
    return [run if isinstance(run, Run) else load_run(run) for run in listed]
