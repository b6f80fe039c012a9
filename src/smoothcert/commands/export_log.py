"""`smoothcert export-log`: a run as the field's TSV."""

from __future__ import annotations

import sys
from pathlib import Path


def export_log(run: Path, *, digits: int = 4) -> None:
    """Write a run to standard output as idx, label, predict, radius, correct, time. Radii are rounded down.

    Parameters
    ----------
    run
        Run directory.
    digits
        Decimals of the radius.
    """
    from smoothcert.runs import read_run
    from smoothcert.runs.field_log import write_field_log

    write_field_log(read_run(run).records, sys.stdout, digits)
