"""Overviews: everything that tables and pages say of a run, worked out once from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.about import alpha_of_class
from smoothcert.analysis.levels import votes_at_levels
from smoothcert.analysis.metrics import (
    RunSummary,
    Runtime,
    acr_share_of_top,
    base_accuracy,
    certified_accuracy,
    check_same_data,
    check_same_indices,
    check_same_norm,
    median_radius,
    noisy_accuracy,
    runtime,
    smoothed_accuracy,
    summarise,
)
from smoothcert.bounds import BOUNDS
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs import Record, Run
from smoothcert.runs.columns import Records, Rows
from smoothcert.tally import ABSTAIN, SOFT_UNIT

QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
"""Which quantiles :class:`TopClass` holds."""

TOP_FRACTION = 0.1
"""The inputs with the largest radii whose share of the ACR an overview states."""


@dataclass(frozen=True)
class ClassResult:
    """The inputs of one label. A class without inputs has no rates: they are None, not 0."""

    label: int
    inputs: int
    accuracy: tuple[float, ...] | None
    """Certified accuracy (0 to 1) at each radius, among the inputs of this label."""
    acr: float | None
    abstained: float | None


@dataclass(frozen=True)
class TopClass:
    """How p_A, the probability of the class that the selection votes chose, is spread over ``inputs`` inputs.

    Inputs without estimation votes (``--stop wrong``) are left out. ``estimates`` and ``lower_bounds`` are at
    :data:`QUANTILES`, each the value of an input. An estimate is a share of other votes than those that chose: unbiased
    where their number was fixed beforehand, not where they themselves could end the voting. Bounds are None where the
    run states no bound or alpha. ``at_ceiling`` is the share of inputs whose votes were all for that class: only more
    votes could certify more.
    """

    inputs: int
    estimates: tuple[float, ...]
    lower_bounds: tuple[float, ...] | None
    at_ceiling: float


@dataclass(frozen=True)
class RunOverview:
    """One run, complete. None is what the run can't say; ``summary`` holds its row of a table."""

    summary: RunSummary
    radii: tuple[float, ...]
    smoothed_accuracy: float
    base_accuracy: float | None
    noisy_accuracy: float | None
    median_radius: float
    acr_share_of_top: float | None
    runtime: Runtime | None
    top_class: TopClass | None
    classes: tuple[ClassResult, ...]


@dataclass(frozen=True)
class EnvelopePoint:
    """The best certified accuracy at one radius, and the run that has it (the first of equals)."""

    radius: float
    accuracy: float
    run: str


def overview(run: Run, radii: Sequence[float]) -> RunOverview:
    """All figures of a run, with certified accuracies at ``radii``."""
    return RunOverview(
        summary=summarise(run, radii),
        radii=tuple(float(radius) for radius in radii),
        smoothed_accuracy=smoothed_accuracy(run.records),
        base_accuracy=base_accuracy(run.records),
        noisy_accuracy=noisy_accuracy(run.records),
        median_radius=median_radius(run.records),
        acr_share_of_top=acr_share_of_top(run.records, TOP_FRACTION),
        runtime=runtime(run.records, votes_at_levels(run)),
        top_class=top_class(run),
        classes=by_class(run.records, radii),
    )


def by_class(records: Rows, radii: Sequence[float], classes: int | None = None) -> tuple[ClassResult, ...]:
    """Results for each label from 0 to the last class known; those without inputs are listed too."""
    if not records:
        raise RunError("no input has been certified yet, so no class has a result")
    columns = Records.of(records)
    labels, abstained = columns.label, columns.abstained
    counted = np.where(columns.correct, columns.radius, -1.0)
    size = _class_count(columns, classes)
    inputs = np.bincount(labels, minlength=size)
    sums = np.bincount(labels, weights=np.maximum(counted, 0.0), minlength=size)
    undecided = np.bincount(labels[abstained], minlength=size)
    asked = np.maximum(np.asarray(radii, dtype=np.float64), 0.0)  # −1 marks what doesn't count at any radius
    certified = [np.bincount(labels[counted >= r], minlength=size) for r in asked]
    return tuple(
        ClassResult(
            label,
            int(count),
            tuple(float(at[label] / count) for at in certified),
            float(sums[label] / count),
            float(undecided[label] / count),
        )
        if count
        else ClassResult(label, 0, None, None, None)
        for label, count in enumerate(inputs)
    )


def top_class(run: Run) -> TopClass | None:
    """The spread of p_A over the inputs with estimation votes; None where none has any."""
    run.check_begun()
    chosen = _chosen_classes(run.records)
    voted = [(r, c) for r, c in zip(run.records, chosen or ()) if r.estimation is not None and r.estimation.n]
    if not voted:
        return None
    run, chosen = replace(run, records=Records.of(record for record, _ in voted)), [c for _, c in voted]
    estimates = np.array([_share(record, c) for record, c in voted])
    order = np.argsort(estimates, kind="stable")
    # The quantile of m values is the ⌈qm⌉-th: an input's own value, so that bound and estimate are of one kind.
    places = np.clip(np.ceil(np.array(QUANTILES) * len(order)).astype(np.int64) - 1, 0, None)
    return TopClass(
        len(voted),
        tuple(float(estimates[order[place]]) for place in places),
        _lower_quantiles(run, chosen, order, places),
        float(np.mean(estimates >= 1.0)),
    )


def lower_bounds(run: Run) -> NDArray[np.float64] | None:
    """For each input the lower bound of p_A that its radius rests on, 0 where voting ended before it began.

    None without votes or a stated bound.
    """
    run.check_begun()
    plan = run.manifest.plan
    candidates = _chosen_classes(run.records)
    if candidates is None or plan.bound is None or plan.alpha is None:
        return None
    rule, alpha = BOUNDS[plan.bound], alpha_of_class(plan)
    return np.array(
        [
            rule(record.estimation, chosen, alpha).lower if record.estimation.n else 0.0
            for record, chosen in zip(run.records, candidates)
            if record.estimation is not None
        ]
    )


def envelope(runs: Sequence[Run], radii: Sequence[float]) -> tuple[EnvelopePoint, ...]:
    """At each radius the largest certified accuracy of ``runs`` (the papers' "best over σ and K").

    **An envelope chooses after the fact.** At each radius it takes the run that happened to do best on these inputs,
    so it is optimistic, no classifier attains it at all radii at once, and intervals for one run don't hold for it.
    """
    if not runs:
        raise InvalidValueError("an envelope needs at least one run")
    for run in runs:
        run.check_begun()
    check_same_norm([(run.name, run.norm) for run in runs])
    check_same_data(runs)
    check_same_indices(runs)
    curves = np.array([certified_accuracy(run.records, radii) for run in runs])
    best = curves.argmax(axis=0)
    return tuple(
        EnvelopePoint(float(radius), float(curves[k, j]), runs[k].name)
        for j, (radius, k) in enumerate(zip(radii, best))
    )


def _chosen_classes(records: Rows) -> list[int] | None:
    """The class that the selection votes chose for each input; None where votes are missing."""
    chosen = []
    for record in records:
        if record.estimation is None or record.selection is None:
            return None
        chosen.append(record.selection.top() if record.predicted == ABSTAIN else record.predicted)
    return chosen


def _share(record: Record, chosen: int) -> float:
    """The class's share of the estimation votes, of which there are some."""
    tally = record.estimation
    assert tally is not None
    return (tally.counts[chosen] if tally.sums is None else tally.sums[chosen] / SOFT_UNIT) / tally.n


def _lower_quantiles(
    run: Run, chosen: list[int], order: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[float, ...] | None:
    plan = run.manifest.plan
    if plan.bound is None or plan.alpha is None:
        return None
    rule, alpha = BOUNDS[plan.bound], alpha_of_class(plan)
    sizes = {tally.stop - tally.start for r in run.records if (tally := r.estimation) is not None}
    if rule.votes == "soft" or len(sizes) > 1:
        every = lower_bounds(run)
        assert every is not None
        return tuple(np.sort(every)[places].tolist())
    # A bound of hard votes grows with the count, so the inputs in order of their estimates are in order of it too.
    found = []
    for position in order[places].tolist():
        tally = run.records[position].estimation
        assert tally is not None
        found.append(rule(tally, chosen[position], alpha).lower)
    return tuple(found)


def _class_count(records: Records, classes: int | None) -> int:
    seen = int(records.label.max()) + 1
    if classes is not None:
        if classes < seen:
            raise InvalidValueError(
                f"classes must be at least {seen}, for label {seen - 1} occurs; got {classes}"
            )
        return classes
    tally = records[0].estimation
    return max(seen, len(tally.counts) if tally is not None else 0)
