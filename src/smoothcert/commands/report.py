"""`smoothcert report`: one HTML page about runs that an auditor can read, check and sign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from smoothcert.commands.options import OutputOptions
from smoothcert.commands.run_argument import RunPath

_ORIGIN = Group("Where the data is (a path that a run names is not opened unasked)", sort_key=5)


def report(
    *runs: RunPath,
    out: Path,
    radius: float | None = None,
    inputs: int = 200,
    dataset: Annotated[str | None, Parameter(group=_ORIGIN)] = None,
    split: Annotated[Literal["test", "train"] | None, Parameter(group=_ORIGIN)] = None,
    data_dir: Annotated[Path | None, Parameter(group=_ORIGIN)] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Write one HTML page about runs: what is proved in words, tables, curves, comparisons, and the inputs.

    The page is a single file, DIR/index.html, that loads nothing from the network: send it by mail, open it on a
    phone, print it and sign it. It states plan, versions and hashes. Runs on several data sets are grouped;
    runs in different norms need a page each.

    Pictures of inputs come from the data set you name, or from the registered one that the run states (such as mnist,
    in `--data-dir` or SMOOTHCERT_DATA), if its sha256 is the run's. Without it the page says so, and shows everything
    else.

    Example: `smoothcert report runs/a runs/b --radius 0.5 --out report`

    Parameters
    ----------
    runs
        Run directories made by certify or import-log, finished or not.
    out
        Directory for index.html; made if missing.
    radius
        Radius of the headline, best fixed before the run (default: chosen near the median, which costs a little).
    inputs
        At most this many inputs of each data set are shown individually: wrong, abstained, barely certified, others.
    dataset
        The data set, where it is a path, or for imported logs.
    split
        Split of the data set.
    data_dir
        Where the files of the data set are.
    """
    from smoothcert.errors import InvalidValueError
    from smoothcert.hints import usage
    from smoothcert.report import DataPlace, ReportOptions, write_report

    if not runs:
        raise InvalidValueError(f"name at least one run; `{usage('report')}` shows how")
    written = write_report(runs, out, ReportOptions(radius, inputs, DataPlace(dataset, split, data_dir)))
    if output.json:
        print(json.dumps({"page": str(written.path), "bytes": written.size, "headlines": written.headlines}))
    elif not output.quiet:
        print("\n".join(written.headlines))
        print(f"{written.path}: {written.size / 1e6:.2f} MB")
