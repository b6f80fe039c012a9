"""What a picture calls its runs, and what it refuses to draw together."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.analysis.about import data_in_words, sigma_mark
from smoothcert.analysis.metrics import RunSummary, check_same_norm, summarise
from smoothcert.analysis.seeds import SeedSummary
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.runs import Run


def checked(runs: Sequence[Run]) -> list[RunSummary]:
    """Summaries of runs that have records and share a norm; else an error."""
    if not runs:
        raise InvalidValueError("a plot needs at least one run, got none; name a run")
    summaries = [summarise(run, [0.0]) for run in runs]
    check_same_norm([(summary.run, summary.norm) for summary in summaries])
    return summaries


def run_labels(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> list[str]:
    """Name, σ, bound and ACR of each; the data set and split where they differ, the inputs where some are missing."""
    return [_label(run, summary, data) for run, summary, data in zip(runs, summaries, told_apart(summaries))]


def told_apart(rows: Sequence[RunSummary | SeedSummary]) -> list[str | None]:
    """Of each the data set, and the split where that differs too; None for all where they are on the same."""
    if len({(row.dataset, row.split) for row in rows}) <= 1:
        return [None] * len(rows)
    splits = len({row.split for row in rows}) > 1
    return [
        data_in_words(row.dataset or "data set not stated", row.split if splits else None) for row in rows
    ]


def _label(run: Run, summary: RunSummary, data: str | None) -> str:
    mark = sigma_mark(summary.sigma_search, summary.sigma_per)
    parts = [
        data,
        None if summary.sigma is None else f"σ = {summary.sigma:g}{mark}",
        summary.bound,
        f"ACR {summary.acr:.3f}",
        partial_inputs(run),
    ]
    return f"{summary.run}  ({', '.join(part for part in parts if part)})"


def partial_inputs(run: Run) -> str | None:
    """``20 of 500 inputs`` for a run that isn't known to be complete."""
    if run.complete:
        return None
    asked = run.planned if run.planned is not None else run.manifest.data.allowed
    return (
        f"{len(run.records)} inputs so far" if asked is None else f"{len(run.records)} of {len(asked)} inputs"
    )


def radius_label(norm: str) -> str:
    """The axis of radii."""
    return f"{norm_name(norm)} radius"
