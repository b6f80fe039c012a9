"""`smoothcert table`, `compare` and `report`: several runs side by side."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from smoothcert.analysis.facts import asked_only, chooser_of, levels_of, own_sigmas
from smoothcert.cli.arguments import RunPath, chosen_beforehand
from smoothcert.cli.console import View, emit, figure_table, note, progress_bar
from smoothcert.cli.options import Names, OriginOptions, OutputOptions
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name, usage
from smoothcert.runs.run import Run, read_run, unique_names

if TYPE_CHECKING:
    from smoothcert.analysis.comparison import Comparison

_TRUSTED = {True: "answers of a memory", False: "an imported log"}


def table(
    *runs: RunPath,
    radii: str | None = None,
    layout: Literal["runs", "paper", "best", "training", "changes"] | None = None,
    format: Literal["markdown", "latex", "csv", "json"] | None = None,
    name: Names = (),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Print a table: certified accuracy in % (right, and certified at radius ≥ r) and average certified radius.

    `--layout runs` has a row for each run, with the bound, n and α it rests on. `--layout paper` is the papers' own:
    methods grouped by σ, the best value of each column within a σ in bold (markdown and latex) where its rows are on
    the same inputs, a block with a heading for each data set, and mean±sd where runs of one method are of distinct
    models on the same inputs and differ in their seed alone. A run's method is what it was
    trained with, or `run import --method`; else its directory's name without σ and seed. `--layout best` is the papers'
    envelope: for each method the best of its runs at each radius. `--layout training`: seconds an epoch, hours and ACR.
    `--layout changes`, of tables with masks: a row for each number of changed categories, with ρ in the columns.

    Example: `smoothcert table runs/* --radii 0,0.25,0.5 --format latex`

    Example: `smoothcert table sweeps/digits/*/certified --layout paper`

    Parameters
    ----------
    runs
        Run directories made by certify or run import; an unfinished one is shown as far as it goes.
    radii
        Radii to report, with commas or spaces between them; they head the columns as you type them.
    layout
        runs (a row for each run; the default), paper (methods grouped by data set and σ), best (the best over each
        method's runs), training (what training its model took) or changes (the default where all runs have masks).
    format
        markdown (default), latex (booktabs), json (full precision), or csv with the header run,sigma,inputs,acr,…
        (paper:
        dataset,sigma,method,seeds,inputs,acr,acr_sd,…) and, after the radii, dataset,split,sigma_search,sigma_per,
        planned,complete,sigma_levels,chooser.
    """
    from smoothcert.analysis.changes import RHOS, is_of_changes
    from smoothcert.analysis.layouts import render_table
    from smoothcert.analysis.tables import default_radii, parse_radii

    if not runs:
        raise InvalidValueError(f"name at least one run; `{usage('table')}` shows how")
    if output.json and format not in (None, "json"):
        raise InvalidValueError(f"--json and --format {format} are mutually exclusive: leave one out")
    if name and layout in ("paper", "best"):
        raise InvalidValueError(f"--layout {layout} has a row for a method, not a run: leave --name out")
    typed = parse_radii(radii) if radii is not None else None
    read = read_runs(runs, name)
    if layout is None:
        layout = "changes" if all(map(is_of_changes, read)) else "runs"
    rendered = render_table(
        read,
        typed or (list(RHOS) if layout == "changes" else default_radii(read)),
        layout,
        "json" if output.json else format or "markdown",
    )
    for sentence in _caveats(read):
        note(sentence)
    sys.stdout.write(rendered)


def read_runs(paths: Sequence[Path], names: Sequence[str] = ()) -> list[Run]:
    """The runs under ``names``, or the shortest that tell them apart; a bar appears where it takes long."""
    if names and len(names) != len(paths):
        raise InvalidValueError(f"--name has {len(names)} names for {len(paths)} runs: give one for each")
    with progress_bar("reading runs", "runs", len(paths), patient=True) as bar:
        runs = []
        for path, name in zip(paths, names or unique_names(paths)):
            runs.append(replace(read_run(path), alias=name))
            bar.one()
    return runs


def _caveats(runs: Sequence[Run]) -> Iterator[str]:
    from smoothcert.analysis.seeds import coverage

    for run in runs:
        if (sentence := coverage(run)) is not None:
            yield sentence
        if run.stateful or run.manifest.kind == "import":
            yield f"{run.path}: {_TRUSTED[run.stateful]}: `smoothcert verify` can't recompute it from votes"
        if (levels := levels_of(run)) is not None:
            sigmas = ", ".join(f"{sigma:g}" for sigma in levels)
            yield f"{run.path}: one classifier whose σ follows the input by the levels {sigmas} ({chooser_of(run)})"
        elif (spread := own_sigmas(run.records.sigma)) is not None:
            yield f"{run.path}: each input has its own σ, {spread}"
        if (rule := asked_only(run.manifest.plan)) is not None:
            yield (
                f"{run.path}: only {rule} was asked for; its ACR, and its accuracy at other radii, are lower than "
                "all n votes would give"
            )


def compare(
    a: RunPath,
    b: RunPath,
    *,
    radii: str | None = None,
    confidence: float = 0.95,
    common: bool = False,
    name: Names = (),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compare two runs on the same inputs: certified accuracies, their difference, and whether it could be chance.

    Two runs saw the same inputs, so only inputs on which they differ count: `only A` and `only B`. The difference
    (B − A, in points) comes with an interval, and the intervals of all radii hold together with the probability
    `--confidence`. p is the exact McNemar test after Holm's correction for the number of radii: if every
    radius with p ≤ 0.05 is called a difference, any false call in the table has probability at most 0.05. The ACR has
    its own sign-flip test. A large p never proves two runs equal: look at how wide the interval is.

    Choose the radii before you look; dropping the disappointing ones undoes the correction. It compares two
    *runs*: whether a training method is better in general takes several training seeds of each.

    Example: `smoothcert compare runs/gaussian runs/smoothmix --radii 0.25,0.5,0.75`

    Parameters
    ----------
    a
        Run directory made by certify or run import.
    b
        Another, on the same data.
    radii
        Radii to compare at, with commas or spaces between them (default: up to the largest that the runs' n and alpha
        allow; logs that don't state them need it).
    confidence
        Probability with which the intervals of all radii hold together.
    common
        Compare on the inputs that both runs have, where one has more. Both must be complete.
    """
    from smoothcert.analysis.comparison import compare as compare_runs
    from smoothcert.analysis.comparison import in_words

    runs = read_runs((a, b), name)
    typed = chosen_beforehand(radii, runs)
    if typed is None:
        raise InvalidValueError(
            "--radii is missing: the runs don't state how large radii could be, and radii that the results choose void "
            "the tests; give the radii of interest, such as --radii 0.25,0.5"
        )
    found = compare_runs(runs[0], runs[1], [float(r) for r in typed], confidence=confidence, common=common)
    emit(View({**asdict(found), "in_words": in_words(found)}, _compared(found, typed)), output)


def _compared(found: Comparison, typed: list[str]) -> Iterator[str | Table]:
    from smoothcert.analysis.comparison import in_words, shown_p
    from smoothcert.analysis.intervals import percent_down, percent_up

    yield (
        f"A = {found.first}, B = {found.second}: certified accuracy (%) of {found.inputs} inputs at "
        f"{norm_name(found.norm)} radius"
    )
    table = figure_table("radius", "A", "B", "only A", "only B", "B − A", "interval", "p (Holm)")
    for radius, row in zip(typed, found.radii):
        table.add_row(
            radius,
            f"{100 * row.first:.1f}",
            f"{100 * row.second:.1f}",
            str(row.only_first),
            str(row.only_second),
            f"{100 * row.difference:+.1f}",
            f"{percent_down(row.low)} to {percent_up(row.high)}",
            shown_p(row.p_holm),
        )
    yield table
    acr = found.acr
    between = (
        "its range is unknown, so there is no interval"
        if acr.low is None or acr.high is None
        else f"{math.floor(1e4 * acr.low) / 1e4:.4f} to {math.ceil(1e4 * acr.high) / 1e4:.4f}"
    )
    yield (
        f"ACR: A {acr.first:.3f}, B {acr.second:.3f}, B − A {acr.difference:+.4f} ({between}), "
        f"p = {shown_p(acr.p_value)}"
    )
    for remark in found.notes:
        yield f"Note: {remark}"
    yield in_words(found)


def report(
    *runs: RunPath,
    out: Path,
    radius: float | None = None,
    inputs: int = 200,
    title: str | None = None,
    name: Names = (),
    origin: OriginOptions = OriginOptions(),
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
        Run directories made by certify or run import, finished or not.
    out
        Directory for index.html; made if missing.
    radius
        Radius of the headline, best fixed before the run (default: chosen near the median, which costs a little).
    inputs
        At most this many inputs of each data set are shown individually: wrong, abstained, barely certified, others.
    title
        Title of the page (default: the models' and the data set's names).
    """
    from smoothcert.analysis.report import DataPlace, ReportOptions, write_report

    if not runs:
        raise InvalidValueError(f"name at least one run; `{usage('report')}` shows how")
    options = ReportOptions(radius, inputs, DataPlace(**vars(origin)), title, name)
    with progress_bar("making the page", "runs", patient=True) as bar:
        bar.begin(None, len(runs))
        written = write_report(runs, out, options, bar.item)
    told = [*written.headlines, f"{written.path}: {written.size / 1e6:.2f} MB"]
    data = {"page": str(written.path), "bytes": written.size, "headlines": written.headlines}
    emit(View(data, told), output)
