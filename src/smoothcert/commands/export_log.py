"""`smoothcert export-log`: a run as the field's TSV or as Parquet."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Literal

from smoothcert.commands.run_argument import RunPath

Format = Literal["tsv", "parquet"]
_TEXT_SUFFIXES = {".tsv", ".txt", ".csv", ".log"}


def export_log(
    run: RunPath, *, format: Format | None = None, out: Path | None = None, digits: int = 4
) -> None:
    """Write a run as a log of one file.

    tsv is what the field's scripts read: idx, label, predict, radius, correct, time, with radii rounded down. parquet
    (extra `parquet`) keeps everything in full precision, votes, statement, noise scales, σ searches and levels too:
    `import-log` makes an identical run of it, and pandas, polars or DuckDB read it as a table.

    Example: `smoothcert export-log runs/a --out a.parquet`

    Parameters
    ----------
    run
        Run directory.
    format
        tsv or parquet (default: parquet if the name of `--out` ends in .parquet, else tsv).
    out
        File to write (default for tsv: standard output).
    digits
        Decimals of the radius in a tsv.
    """
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError
    from smoothcert.extras import require
    from smoothcert.files import write_atomically
    from smoothcert.plain_text import norm_name
    from smoothcert.runs import read_run
    from smoothcert.runs.field_log import write_field_log

    if _format(format, out) == "parquet":
        from smoothcert.runs.parquet import write_parquet

        if out is None:
            raise InvalidValueError("--out is missing: a Parquet file doesn't go to standard output")
        require("pyarrow.parquet", "Parquet")
        write_parquet(read_run(run), out)
        return
    whole = read_run(run)
    if whole.shortfall is not None:
        note(f"{run} holds {whole.shortfall}; a tsv doesn't say so and will look complete")
    if whole.manifest.model.held is not None:
        note(f"{run} certifies in {norm_name(whole.norm)}; a tsv doesn't say that coordinates are held")
    if out is None:
        write_field_log(whole.records, sys.stdout, digits)
    else:
        stream = io.StringIO()
        write_field_log(whole.records, stream, digits)
        write_atomically(out, stream.getvalue().encode())


def _format(given: Format | None, out: Path | None) -> Format:
    """The format asked for, else the one that the file's name says; refused where they contradict each other."""
    from smoothcert.errors import InvalidValueError

    suffix = "" if out is None else out.suffix.lower()
    named: Format = "parquet" if suffix == ".parquet" else "tsv"
    if given is None:
        return named
    if given != named and suffix in {".parquet", *_TEXT_SUFFIXES}:
        raise InvalidValueError(
            f"--format {given} contradicts --out {out}: leave --format out, or name the file .{given}"
        )
    return given
