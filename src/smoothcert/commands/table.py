"""`smoothcert table`: certified accuracy and ACR of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal


def table(
    *runs: Path,
    radii: str | None = None,
    format: Literal["markdown", "latex", "csv", "json"] = "markdown",
) -> None:
    """Print a table: certified accuracy in % (right, and certified at radius ≥ r) and average certified radius.

    Example: `smoothcert table runs/* --radii 0,0.25,0.5 --format latex`

    Parameters
    ----------
    runs
        Run directories made by certify or import-log.
    radii
        Radii to report, separated by commas; they head the columns as you type them.
    format
        markdown, latex (booktabs), csv (header run,sigma,inputs,acr,…) or json (full precision).
    """
    from smoothcert.analysis.metrics import summarise
    from smoothcert.analysis.tables import default_radii, parse_radii, render_table
    from smoothcert.errors import InvalidValueError
    from smoothcert.runs import read_run

    if not runs:
        raise InvalidValueError("name at least one run: smoothcert table RUN…")
    read = [read_run(path) for path in runs]
    typed = parse_radii(radii) if radii is not None else default_radii(read)
    rendered = render_table([summarise(run, [float(r) for r in typed]) for run in read], typed, format)
    sys.stdout.write(rendered)
