"""What a run calls itself in a paper's table, and which runs may stand in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from smoothcert.analysis.about import chooser_of, dataset_of, levels_of, search_of, sigma_per
from smoothcert.analysis.seeds import reason_not_to_average
from smoothcert.analysis.trained import training_seed
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import shown_name
from smoothcert.runs import Run

_CELL_PART = re.compile(r"[-_](?:sigma[0-9.]+|seed[0-9]+)(?=[-_]|$)")
_SWEEP_FOLDER = "certified"

INCIDENTAL = frozenset(
    {"seed", "dtype", "route", "chunk", "block", "generator", "device", "recertified_from"}
)
"""Fields of a plan that name the votes or how they are computed: they move a figure by chance or by a last bit."""


def method_of(run: Run) -> str:
    """The method the run's origin states, else the run's name without its σ and seed.

    A sweep's runs are all called ``certified``: the folder above, the sweep's cell, names them. What is certified with
    a σ for each input or each coordinate is another method.
    """
    stated = run.manifest.origin.method
    if isinstance(stated, str) and stated:
        name = shown_name(stated)
    else:
        own = shown_name(run.path.resolve().name)
        named = run.path.resolve().parent.name if own == _SWEEP_FOLDER else run.alias or own
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
    plans = [_essential(run) for run in runs]
    return all(plan == plans[0] for plan in plans)


def _essential(run: Run) -> dict[str, Any]:
    """The plan without what is incidental; choosers, as models, are others for other seeds."""
    plan = {name: value for name, value in run.manifest.plan.items() if name not in INCIDENTAL}
    if (chooser := run.manifest.plan.chooser) is not None:
        plan["chooser"] = {
            name: value for name, value in chooser.items() if name not in {*INCIDENTAL, "sha256"}
        }
    return plan


def check_same_inputs(runs: Sequence[Run]) -> None:
    """Refuse runs that can't be of one data set: other contents stated, or other labels seen."""
    labels: dict[int, tuple[int, Run]] = {}
    contents: dict[str, Run] = {}
    for run in runs:
        digest = run.manifest.data.sha256
        if isinstance(digest, str):
            contents.setdefault(digest, run)
        if len(contents) > 1:
            first, second = contents.values()
            raise InvalidValueError(
                f"{first.path} and {second.path} both name the data set {dataset_of(run)}, but its contents differ "
                "(split or version); show them one at a time"
            )
        for index, own in zip(run.records.index.tolist(), run.records.label.tolist()):
            label, where = labels.setdefault(index, (own, run))
            if label != own:
                name = dataset_of(run)
                unnamed = name is None or dataset_of(where) is None
                remedy = (
                    ", or import logs with --dataset NAME" if unnamed else f", for both are called {name}"
                )
                raise InvalidValueError(
                    f"input {index} has label {label} in {where.path} and {own} in {run.path}: "
                    f"they are of different data sets; show one at a time{remedy}"
                )


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
