"""Kinds of plot by name, what a picture calls its runs, and what it doesn't draw together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from smoothcert.analysis.facts import data_in_words
from smoothcert.analysis.metrics import RunFacts, RunSummary, check_same_norm, summarise
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.registry import Registry
from smoothcert.runs.run import Run

Reads = Literal["runs", "ladders", "scales", "trainings"]
"""What a plot is drawn from: runs, ladders of fits, σ vectors, or epochs of training runs."""

Draw = TypeVar("Draw", bound=Callable[..., None])
_MOST_PANELS = 8


@dataclass(frozen=True)
class PlotKind:
    """``draw(things, out=…, width=…)`` and what help says of it; ``options`` explains further keywords.

    ``names_each``: whether the picture calls each thing by its name, or speaks of methods.
    """

    name: str
    words: str
    draw: Callable[..., None]
    reads: Reads
    fewest: int
    options: Mapping[str, str]
    names_each: bool


PLOTS: Registry[PlotKind] = Registry("kind of plot", __package__)


def register(
    name: str,
    words: str,
    *,
    reads: Reads = "runs",
    fewest: int = 1,
    options: Mapping[str, str] | None = None,
    names_each: bool = True,
) -> Callable[[Draw], Draw]:
    """Decorator: put a function on the list of plots. All arguments are literals: help is made from the source."""

    def add(draw: Draw) -> Draw:
        PLOTS.register(name)(PlotKind(name, words, draw, reads, fewest, options or {}, names_each))
        return draw

    return add


def checked(runs: Sequence[Run]) -> list[RunSummary]:
    """Summaries of runs that have records and share a norm; else an error."""
    if not runs:
        raise InvalidValueError("a plot needs at least one run, got none; name a run")
    summaries = [summarise(run, [0.0]) for run in runs]
    check_same_norm([(summary.run, summary.norm) for summary in summaries])
    return summaries


def check_panels(runs: Sequence[Run]) -> None:
    """Refuse more panels than a page holds."""
    if len(runs) > _MOST_PANELS:
        raise InvalidValueError(
            f"each run gets a panel of its own, at most {_MOST_PANELS} of them; got {len(runs)} runs: name fewer"
        )


def run_labels(runs: Sequence[Run], summaries: Sequence[RunSummary]) -> tuple[str | None, list[str]]:
    """What all runs share, as a heading, and of each its name, what differs, its ACR, and the inputs if some are
    missing: data set (and split, where that differs), σ and bound stand in one of the two; n and α only where they
    differ."""
    facts: list[tuple[str | None, ...]] = [
        (
            data or summary.dataset,
            None if summary.sigma is None else f"σ = {summary.sigma:g}{summary.sigma_mark}",
            None if summary.bound is None else f"{summary.bound} bound",
            None if summary.n is None else f"n = {summary.n}",
            None if summary.alpha is None else f"α = {summary.alpha:g}",
        )
        for summary, data in zip(summaries, told_apart(summaries))
    ]
    shared = [len(set(column)) == 1 for column in zip(*facts)]
    if len(runs) == 1:
        heading, differing = None, [facts[0][1:3]]
    else:
        heading = ", ".join(fact for fact, same in zip(facts[0][:3], shared) if same and fact) or None
        differing = [tuple(fact for fact, same in zip(each, shared) if not same) for each in facts]
    labels = []
    for run, summary, each in zip(runs, summaries, differing):
        parts = [*each, f"ACR {summary.acr:.3f}", partial_inputs(run)]
        labels.append(f"{summary.run}  ({', '.join(part for part in parts if part)})")
    return heading, labels


def told_apart(rows: Sequence[RunFacts]) -> list[str | None]:
    """Of each the data set, and the split where that differs as well; None for all where they are on the same."""
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
    done = len(run.records)
    return f"{done} inputs so far" if asked is None else f"{done} of {len(asked)} inputs"


def radius_label(norm: str) -> str:
    """The axis of radii."""
    return f"{norm_name(norm)} radius"
