"""`smoothcert table`: certified accuracy and ACR of runs."""

from __future__ import annotations

import sys
from typing import Literal

from smoothcert.commands.run_argument import RunPath

_TRUSTED = {True: "answers of a memory", False: "an imported log"}


def table(
    *runs: RunPath,
    radii: str | None = None,
    layout: Literal["runs", "paper", "best", "training"] = "runs",
    format: Literal["markdown", "latex", "csv", "json"] = "markdown",
) -> None:
    """Print a table: certified accuracy in % (right, and certified at radius ≥ r) and average certified radius.

    `--layout runs` has a row for each run, with the bound, n and α it rests on. `--layout paper` is the papers' own:
    methods grouped by σ, the best value of each column within a σ in bold (markdown and latex) where its rows are on
    the same inputs, a block with a heading for each data set, and mean±sd where runs of one method are of distinct
    models on the same inputs and differ in their seed alone. A run's method is what it was
    trained with, or `import-log --method`; else its directory's name without σ and seed. `--layout best` is the papers'
    envelope: for each method the best of its runs at each radius. `--layout training`: seconds an epoch, hours and ACR.

    Example: `smoothcert table runs/* --radii 0,0.25,0.5 --format latex`

    Example: `smoothcert table sweeps/digits/*/certified --layout paper`

    Parameters
    ----------
    runs
        Run directories made by certify or import-log; an unfinished one is shown as far as it goes.
    radii
        Radii to report, with commas or spaces between them; they head the columns as you type them.
    layout
        runs (a row for each run), paper (methods grouped by data set and σ), best (the best over each method's runs) or
        training (what training its model took).
    format
        markdown, latex (booktabs), json (full precision), or csv with the header run,sigma,inputs,acr,… (paper:
        dataset,sigma,method,seeds,inputs,acr,acr_sd,…) and, after the radii, dataset,split,sigma_search,sigma_per,
        planned,complete,sigma_levels,chooser. best and training: all but latex.
    """
    from smoothcert.analysis.about import chooser_of, levels_of, own_sigmas
    from smoothcert.analysis.tables import default_radii, parse_radii
    from smoothcert.analysis.tables.layouts import render_layout
    from smoothcert.analysis.tables.naming import coverage
    from smoothcert.analysis.votes import asked_only
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError
    from smoothcert.hints import usage
    from smoothcert.runs import read_run

    if not runs:
        raise InvalidValueError(f"name at least one run; `{usage('table')}` shows how")
    typed = parse_radii(radii) if radii is not None else None
    read = [read_run(path) for path in runs]
    rendered = render_layout(read, typed or default_radii(read), layout, format)
    for run in read:
        if (sentence := coverage(run)) is not None:
            note(sentence)
        if run.stateful or run.manifest.kind == "import":
            note(f"{run.path}: {_TRUSTED[run.stateful]}: `smoothcert verify` can't recompute it from votes")
        if (levels := levels_of(run)) is not None:
            sigmas = ", ".join(f"{sigma:g}" for sigma in levels)
            note(
                f"{run.path}: one classifier whose σ follows the input by the levels {sigmas} ({chooser_of(run)})"
            )
        elif (spread := own_sigmas(run.records.sigma)) is not None:
            note(f"{run.path}: each input has its own σ, {spread}")
        if (rule := asked_only(run.manifest.plan)) is not None:
            note(
                f"{run.path}: only {rule} was asked for; its ACR, and its accuracy at other radii, are lower than "
                "all n votes would give"
            )
    sys.stdout.write(rendered)
