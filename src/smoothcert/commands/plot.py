"""`smoothcert plot`: certified accuracy against radius."""

from __future__ import annotations

from pathlib import Path


def plot(*runs: Path, out: Path) -> None:
    """Draw certified accuracy against radius, one curve per run.

    Example: `smoothcert plot runs/a runs/b --out curve.pdf`

    Parameters
    ----------
    runs
        Run directories made by certify or import-log.
    out
        Picture to write: .png, .svg or .pdf.
    """
    from smoothcert.analysis.plots import plot_certified_accuracy
    from smoothcert.errors import InvalidValueError
    from smoothcert.runs import read_run

    if not runs:
        raise InvalidValueError("name at least one run: smoothcert plot RUN… --out FILE")
    plot_certified_accuracy([read_run(path) for path in runs], out)
