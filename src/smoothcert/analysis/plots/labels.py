"""What a picture calls its runs, and what it refuses to draw together."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.analysis.about import data_in_words
from smoothcert.analysis.metrics import RunFacts, RunSummary, check_same_norm, summarise
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


def run_labels(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> tuple[str | None, list[str]]:
    """What all runs share, as a heading, and of each its name, what is its own, its ACR, and the inputs if some are
    missing: data set (and split, where that differs), σ and bound stand in one of the two; n and α only where they
    differ."""
    alike = [len(set(column)) == 1 for column in zip(*map(_votes, summaries))]
    facts: list[tuple[str | None, ...]] = [
        (
            data or summary.dataset,
            None if summary.sigma is None else f"σ = {summary.sigma:g}{summary.sigma_mark}",
            None if summary.bound is None else f"{summary.bound} bound",
            *(words for words, same in zip(_votes(summary), alike) if not same),
        )
        for summary, data in zip(summaries, told_apart(summaries))
    ]
    shared = [len(set(column)) == 1 for column in zip(*facts)]
    if len(runs) == 1:
        heading, own = None, [facts[0][1:]]
    else:
        heading = ", ".join(fact for fact, same in zip(facts[0], shared) if same and fact) or None
        own = [tuple(fact for fact, same in zip(each, shared) if not same) for each in facts]
    labels = []
    for run, summary, each in zip(runs, summaries, own):
        parts = [*each, f"ACR {summary.acr:.3f}", partial_inputs(run)]
        labels.append(f"{summary.run}  ({', '.join(part for part in parts if part)})")
    return heading, labels


def _votes(summary: RunFacts) -> tuple[str | None, str | None]:
    n, alpha = summary.n, summary.alpha
    return None if n is None else f"n = {n}", None if alpha is None else f"α = {alpha:g}"


def told_apart(rows: Sequence[RunFacts]) -> list[str | None]:
    """Of each the data set, and the split where that differs too; None for all where they are on the same."""
    if len({(row.dataset, row.split) for row in rows}) <= 1:
        return [None] * len(rows)
    splits = len({row.split for row in rows}) > 1
    return [
        data_in_words(row.dataset or "data set not stated", row.split if splits else None) for row in rows
    ]


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
