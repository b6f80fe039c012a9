"""Several runs of a method: mean and standard deviation over seeds, the best over σ, and what doesn't compare."""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.facts import (
    chooser_of,
    dataset_of,
    levels_of,
    search_of,
    sigma_per,
    training_difference,
    training_seed,
)
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import shown_name
from smoothcert.runs.run import Run

_CELL_PART = re.compile(r"[-_](?:sigma[0-9.]+|seed[0-9]+)(?=[-_]|$)")
_SWEEP_FOLDER = "certified"

INCIDENTAL = frozenset(
    {"seed", "dtype", "route", "chunk", "block", "generator", "device", "recertified_from"}
)
"""Fields of a plan that name the votes or how they are computed: they move a figure by chance or by a last bit."""


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one method at one σ, each trained from another seed."""

    method: str
    sigma: float
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidValueError(f"{self.method} at σ = {self.sigma:g} has no run to average")


def reason_not_to_average(runs: Sequence[Run]) -> str | None:
    """Why a mean over these runs would be none over seeds, as "A and B …"; None if nothing speaks against it.

    Means are of distinct models on the same inputs, trained alike: of other inputs or settings the spread would be
    theirs, and of one model certified twice it would be that of the votes.
    """
    first = runs[0]
    models: dict[str, Run] = {}
    for run in runs:
        if (differ := training_difference(first.manifest.origin, run.manifest.origin)) is not None:
            return f"the models of {first.path} and {run.path} were trained otherwise ({differ})"
        if run.manifest.data.sha256 != first.manifest.data.sha256:
            return f"{first.path} and {run.path} are on different data"
        if not np.array_equal(run.records.index, first.records.index):
            return f"{first.path} and {run.path} certify different inputs"
        # An imported log knows no model: the same answers and radii twice would be the same model twice, whatever
        # the log's times and order.
        digest = run.manifest.model.sha256
        if digest is None:
            order = np.argsort(run.records.index)
            columns = (run.records.index, run.records.predicted, run.records.radius)
            digest = hashlib.sha256(b"".join(column[order].tobytes() for column in columns)).hexdigest()
        if digest in models:
            return f"{models[digest].path} and {run.path} certify the same model"
        models[digest] = run
    return None


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the sample standard deviation (None for one seed)."""

    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self, digits: int, scale: float = 1.0) -> str:
        """``1.558±0.002``, or the mean alone."""
        mean = f"{scale * self.mean:.{digits}f}"
        return mean if self.sd is None else f"{mean}±{scale * self.sd:.{digits}f}"


@dataclass(frozen=True, kw_only=True)
class SeedSummary(metrics.RunFacts):
    """One row of a table over seeds; ``accuracy`` holds the certified accuracy (0 to 1) at each radius."""

    method: str
    seeds: int
    acr: Spread
    accuracy: tuple[Spread, ...]
    indices: tuple[int, ...]
    """Which inputs of the data set the figures are of."""

    def printed(self) -> tuple[str, ...]:
        """ACR and the percentages, as they stand in a table."""
        return self.acr.text(3), *(spread.text(1, scale=100) for spread in self.accuracy)


def summarise_seeds(group: SeedGroup, radii: Sequence[float]) -> SeedSummary:
    """The group's figures; runs on different inputs or under different plans don't average."""
    summaries = [metrics.summarise(run, radii) for run in group.runs]
    first = summaries[0]
    for summary, run in zip(summaries, group.runs):
        for field in ("sigma", "bound", "n", "alpha", "norm", "inputs"):
            if getattr(summary, field) != getattr(first, field):
                raise InvalidValueError(
                    f"{run.path} has {field} {getattr(summary, field)}, {group.runs[0].path} has "
                    f"{getattr(first, field)}: only runs that differ in their seed alone can be averaged"
                )
    if (reason := reason_not_to_average(group.runs)) is not None:
        raise InvalidValueError(f"{reason}: only runs that differ in their seed alone can be averaged")
    return SeedSummary.stated_by(
        group.runs[0],
        method=group.method,
        sigma=group.sigma,
        seeds=len(summaries),
        acr=Spread.of([summary.acr for summary in summaries]),
        accuracy=tuple(Spread.of(column) for column in zip(*(summary.accuracy for summary in summaries))),
        indices=tuple(group.runs[0].records.index.tolist()),
        complete=all(summary.complete for summary in summaries),
    )


def method_of(run: Run) -> str:
    """The method the run's origin states, else the run's name without its σ and seed.

    A sweep's runs are all called ``certified``: the folder above, the sweep's cell, names them. What is certified with
    a σ for each input or each coordinate is another method.
    """
    stated = run.manifest.origin.method
    if isinstance(stated, str) and stated:
        name = shown_name(stated)
    else:
        folder = shown_name(run.path.resolve().name)
        named = run.path.resolve().parent.name if folder == _SWEEP_FOLDER else folder
        name = _CELL_PART.sub("", named) or named
    if (levels := levels_of(run)) is not None:
        name = f"{name} + {len(levels)} σ levels ({chooser_of(run)})"
    elif (search := search_of(run)) is not None:
        name = f"{name} + σ search ({search})"
    elif (per := sigma_per(run)) is not None:
        name = f"{name} + σ per {per}"
    return f"{name} (stateful)" if run.stateful else name


def differ_in_seed_alone(runs: Sequence[Run]) -> bool:
    """Whether a mean over the runs is a mean over seeds: distinct models on the same inputs, under one plan.

    The seed is that of the training where the runs state it, else the one of the votes.
    """
    trained = [training_seed(run.manifest.origin) for run in runs]
    seeds = [run.manifest.plan.seed for run in runs] if None in trained else trained
    if None in seeds or len(set(seeds)) < len(seeds) or reason_not_to_average(runs) is not None:
        return False
    plans = []
    for run in runs:  # choosers, as models, are others for other seeds
        plan = {name: value for name, value in run.manifest.plan.items() if name not in INCIDENTAL}
        if (chooser := run.manifest.plan.chooser) is not None:
            plan["chooser"] = {n: v for n, v in chooser.items() if n not in {*INCIDENTAL, "sha256"}}
        plans.append(plan)
    return all(plan == plans[0] for plan in plans)


def check_same_inputs(runs: Sequence[Run]) -> None:
    """Refuse runs that can't be of one data set: other contents stated, or other labels seen."""
    contents: dict[str, Run] = {}
    for run in runs:
        if (digest := run.manifest.data.sha256) is not None:
            contents.setdefault(digest, run)
        if len(contents) > 1:
            first, second = contents.values()
            raise InvalidValueError(
                f"{first.path} and {second.path} both name the data set {dataset_of(run)}, but its contents differ "
                "(split or version); show them one at a time"
            )
    metrics.check_same_labels(runs)


def check_one_protocol(runs: Sequence[Run]) -> None:
    """Refuse a choice among runs that claim with other certainty: the largest α would be the best."""
    for name in ("bound", "alpha"):
        stated = {value: run for run in runs if (value := run.manifest.plan.value(name)) is not None}
        if len(stated) > 1:
            named = ", ".join(f"{run.path} ({name} = {value})" for value, run in stated.items())
            raise InvalidValueError(
                f"a best among runs that differ in {name} would be of that choice: {named}; recertify them alike, or "
                "name those of one"
            )


def check_one_dataset(runs: Sequence[Run]) -> None:
    """Refuse runs that name different data sets or can't be of one."""
    names = {name: run for run in runs if (name := dataset_of(run)) is not None}
    if len(names) > 1:
        named = ", ".join(f"{run.path} ({name})" for name, run in names.items())
        raise InvalidValueError(f"runs on different data sets don't compare: {named}; name one data set's")
    check_same_inputs(runs)


def coverage(run: Run) -> str | None:
    """A sentence for a run that isn't known to hold all the inputs it was asked for."""
    return None if run.shortfall is None else f"{shown_name(str(run.path))}: {run.shortfall}"


@dataclass(frozen=True)
class BestRow:
    """A method's best over its runs, of ACR and of the accuracy (0 to 1) at each radius, each with the run it is of.

    ``oracle`` is the ACR if every input could choose its run after all were certified. ``planned`` inputs were asked
    for; ``complete`` says whether every run has them all.
    """

    method: str
    runs: int
    inputs: int
    acr: tuple[float, str]
    oracle: float
    accuracy: tuple[tuple[float, str], ...]
    dataset: str | None
    split: str | None
    planned: int | None
    complete: bool


def best_rows(runs: Sequence[Run], radii: Sequence[float]) -> list[BestRow]:
    """A row for each method, over all its σ and searches (data-dependent smoothing, Tables 1 to 3).

    Each figure is a maximum over runs, chosen on the inputs that it is shown for: no one model reaches all of them,
    and the choice flatters, most of all the oracle's. That one is here because the papers' ACR of these tables lie
    above what any of their runs can have. Rejected where a method's runs are on different inputs.
    """
    metrics.check_same_norm([(str(run.path), run.norm) for run in runs])
    check_one_dataset(runs)
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(method_of(run), []).append(run)
    rows = []
    for method, same in members.items():
        metrics.check_same_indices(same)  # the best would be that of the easier ones
        check_one_protocol(same)
        of, paths = [metrics.summarise(run, radii) for run in same], [str(run.path) for run in same]
        inputs = len(same[0].records)
        rows.append(
            BestRow(
                method,
                len(same),
                inputs,
                max(zip((summary.acr for summary in of), paths)),
                math.fsum(np.max([metrics.counted_radii(run.records) for run in same], axis=0)) / inputs,
                tuple(max(zip(column, paths)) for column in zip(*(summary.accuracy for summary in of))),
                next((summary.dataset for summary in of if summary.dataset is not None), None),
                next((summary.split for summary in of if summary.split is not None), None),
                max((summary.planned for summary in of if summary.planned is not None), default=None),
                all(summary.complete for summary in of),
            )
        )
    return rows
