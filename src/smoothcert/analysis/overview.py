"""Overviews: everything that tables and pages say of a run, worked out once from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis import facts
from smoothcert.analysis.metrics import (
    RunSummary,
    Runtime,
    acr_share_of_top,
    base_accuracy,
    median_radius,
    noisy_accuracy,
    runtime,
    smoothed_accuracy,
    summarise,
)
from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import RunError
from smoothcert.runs.records import Records, Rows
from smoothcert.runs.run import Run
from smoothcert.runs.side_files import LevelEvidence, missing_line, read_evidence
from smoothcert.runs.statement import PlanStatement
from smoothcert.smoothing.stopping.base import budget_among
from smoothcert.tally import ABSTAIN, SOFT_UNIT, Tally

LIMITS = {
    "home": "the input's own level",
    "level": "another level, which the chooser may come to",
    "chooser": "the chooser, which may come to a level that certifies less",
}
"""What keeps a radius from being larger, in words."""


@dataclass(frozen=True)
class LevelsUsed:
    """``homes`` has the number of inputs at each of ``sigmas``; ``looked`` how many levels were voted on for how many
    inputs; ``limits`` what keeps the radii of certified inputs small.

    ``votes`` are by stage: of the chooser, at the input's own level, at others. ``share`` is their sum in parts of what
    one σ would take, n0 + n for every input.
    """

    sigmas: tuple[float, ...]
    chooser: str
    homes: tuple[int, ...]
    looked: Mapping[int, int]
    limits: Mapping[str, int]
    votes: Mapping[str, int]
    share: float

    def sentences(self) -> list[str]:
        """A sentence for each."""
        inputs, total = sum(self.homes), sum(self.votes.values())
        homes = ", ".join(f"{count} at σ = {sigma:g}" for sigma, count in zip(self.sigmas, self.homes))
        looked = ", ".join(f"{count} at {levels}" for levels, count in self.looked.items())
        limits = ", ".join(f"{LIMITS[name]} for {count}" for name, count in self.limits.items())
        votes = ", ".join(f"{count:,} {where}" for where, count in self.votes.items())
        return [
            f"σ follows the input by {len(self.sigmas)} levels (chooser: {self.chooser}): of {inputs} inputs {homes}",
            f"numbers of levels that had to be voted on: {looked}",
            *([f"what keeps certified radii from being larger: {limits}"] if limits else []),
            f"{total:,} votes in all, {total / inputs:,.0f} for an input on average ({votes}): "
            f"{100 * self.share:.1f} % of what one σ would take",
        ]


def level_evidence(run: Run) -> list[LevelEvidence] | None:
    """Each record's votes of chooser and levels, in their order; None where the run has no levels.

    RunError where one is missing: figures of the others alone would be others.
    """
    if facts.levels_of(run) is None:
        return None
    evidence = read_evidence(run.path)
    for index in run.records.index.tolist():
        if index not in evidence:
            raise missing_line(run.path, index)
    return [evidence[index] for index in run.records.index.tolist()]


def decided_levels(run: Run) -> list[LevelEvidence] | None:
    """The same with what follows from the votes: how far each level is out of reach, and how far it certifies."""
    from smoothcert.experimental.levels.procedures import decide_levels
    from smoothcert.smoothing.plan import CertifyPlan

    evidence = level_evidence(run)
    if evidence is None:
        return None
    plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
    nowhere = np.zeros(1)  # the input itself only places the region
    decided = (decide_levels(nowhere, plan, votes).evidence.levels for votes in evidence)
    return [levels for levels in decided if levels is not None]


def used_json(run: Run) -> dict[str, Any]:
    """What votes and levels came to, as far as there is something to say."""
    used = {"votes": facts.votes_used(run), "levels": levels_used(run)}
    return {name: asdict(part) for name, part in used.items() if part is not None}


def levels_used(run: Run) -> LevelsUsed | None:
    """What the levels of a run came to; None where it has none, or no record yet."""
    evidence, sigmas, chooser = decided_levels(run), facts.levels_of(run), facts.chooser_of(run)
    if not evidence or sigmas is None or chooser is None:
        return None
    plan = run.manifest.plan
    budget = budget_among(facts.stops_of(plan))
    homes = Counter(levels.home for levels in evidence)
    certified = (levels.limit for levels, radius in zip(evidence, run.records.radius.tolist()) if radius > 0)
    at_home = sum(facts.record_votes(record, budget) for record in run.records)
    choosing = sum(tally.n for one in evidence for tally in (one.chosen, one.chooser) if tally is not None)
    elsewhere = sum(vote.selection.n + vote.estimation.n for levels in evidence for vote in levels.votes[1:])
    votes = {"of the chooser": choosing, "at an input's own level": at_home, "at other levels": elsewhere}
    each = plan.known(PlanStatement.n0) + plan.known(PlanStatement.n)
    return LevelsUsed(
        sigmas,
        chooser,
        tuple(homes[level] for level in range(len(sigmas))),
        dict(sorted(Counter(len(levels.votes) for levels in evidence).items())),
        dict(Counter(certified).most_common()),
        votes,
        sum(votes.values()) / (len(evidence) * each),
    )


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
    where their number was fixed in advance, not where they themselves could end the voting. Bounds are None where the
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


def overview(run: Run, radii: Sequence[float]) -> RunOverview:
    """All figures of a run, with certified accuracies at ``radii``."""
    evidence = level_evidence(run)  # records don't keep all votes of a run with levels
    return RunOverview(
        summary=summarise(run, radii),
        radii=tuple(float(radius) for radius in radii),
        smoothed_accuracy=smoothed_accuracy(run.records),
        base_accuracy=base_accuracy(run.records),
        noisy_accuracy=noisy_accuracy(run.records),
        median_radius=median_radius(run.records),
        acr_share_of_top=acr_share_of_top(run.records, TOP_FRACTION),
        runtime=runtime(run.records, sum(votes.n for votes in evidence) if evidence else None),
        top_class=top_class(run),
        classes=by_class(run.records, radii),
    )


def by_class(records: Rows, radii: Sequence[float]) -> tuple[ClassResult, ...]:
    """Results for each label from 0 to the last class known; those without inputs are listed as well."""
    if not records:
        raise RunError("no input has been certified yet, so no class has a result")
    columns = Records.of(records)
    labels, abstained = columns.label, columns.abstained
    counted = np.where(columns.correct, columns.radius, -1.0)
    tally = columns[0].estimation
    size = max(int(labels.max()) + 1, 0 if tally is None else len(tally.counts))
    inputs = np.bincount(labels, minlength=size)
    sums = np.bincount(labels, weights=np.maximum(counted, 0.0), minlength=size)
    undecided = np.bincount(labels[abstained], minlength=size)
    asked = np.maximum(np.asarray(radii, dtype=np.float64), 0.0)  # −1 marks what doesn't count at any radius
    certified = [np.bincount(labels[counted >= r], minlength=size) for r in asked]
    results = []
    for label, count in enumerate(inputs.tolist()):
        shares = [float(of[label] / count) if count else None for of in (sums, undecided)]
        accuracy = tuple(float(at[label] / count) for at in certified) if count else None
        results.append(ClassResult(label, count, accuracy, *shares))
    return tuple(results)


def top_class(run: Run) -> TopClass | None:
    """The spread of p_A over the inputs with estimation votes; None where none has any."""
    run.check_begun()
    votes = _estimation_votes(run.records) or []
    voted = np.array([tally.n > 0 for tally, _ in votes], dtype=bool)
    if not voted.any():
        return None
    shares = np.sort([_share(tally, chosen) for tally, chosen in votes if tally.n])
    # The quantile of m values is the ⌈qm⌉-th: an input's own value, so that bound and estimate are of one kind.
    places = np.clip(np.ceil(np.array(QUANTILES) * shares.size).astype(np.int64) - 1, 0, None)
    bounds = lower_bounds(run)
    return TopClass(
        shares.size,
        tuple(shares[places].tolist()),
        None if bounds is None else tuple(np.sort(bounds[voted])[places].tolist()),
        float(np.mean(shares >= 1.0)),
    )


def lower_bounds(run: Run) -> NDArray[np.float64] | None:
    """For each input the lower bound of p_A that its radius rests on, 0 where voting ended before it began.

    None without votes or a stated bound.
    """
    run.check_begun()
    plan, votes = run.manifest.plan, _estimation_votes(run.records)
    if votes is None or plan.bound is None or plan.alpha is None:
        return None
    rule, alpha = BOUNDS[plan.bound], facts.alpha_of_class(plan)
    return np.array([rule(tally, chosen, alpha).lower if tally.n else 0.0 for tally, chosen in votes])


def _estimation_votes(records: Rows) -> list[tuple[Tally, int]] | None:
    """Each input's, and the class that its selection votes chose; None where votes are missing."""
    votes = []
    for record in records:
        if record.estimation is None or record.selection is None:
            return None
        chosen = record.selection.top() if record.predicted == ABSTAIN else record.predicted
        votes.append((record.estimation, chosen))
    return votes


def _share(tally: Tally, chosen: int) -> float:
    return (tally.counts[chosen] if tally.sums is None else tally.sums[chosen] / SOFT_UNIT) / tally.n
