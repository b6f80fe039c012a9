"""What a run's figures are about: which data set and split, and whether σ is one for all inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.plain_text import shown_name
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_levels import class_alpha
from smoothcert.smoothing.stopping.base import Budget, Stop, budget_among, parse_stops

Per = Literal["input", "coordinate", "level"]
"""What has a σ of its own. By levels σ is one function of the input, and the same classifier everywhere."""


def dataset_of(run: Run) -> str | None:
    """The data set the run states; None for a log imported without one."""
    name = run.manifest.data.name
    return shown_name(name) if isinstance(name, str) and name else None


def split_of(run: Run) -> str | None:
    """The split of the data set, where the run states it; logs don't."""
    split = run.manifest.origin.split
    return shown_name(split) if split else None


def data_in_words(dataset: str | None, split: str | None) -> str | None:
    """``digits, test split``; None where neither is known."""
    return ", ".join(part for part in (dataset, None if split is None else f"{split} split") if part) or None


def search_of(run: Run) -> str | None:
    """The search that chose each input's σ, by name; None where none did."""
    search = run.manifest.plan.sigma_search
    return shown_name(search) if search else None


def sigma_per(run: Run) -> Per | None:
    """Whether each input or each coordinate has a σ of its own; None where all have the same.

    A log may have a σ for each input without saying how it was found.
    """
    if levels_of(run) is not None:
        return "level"
    if search_of(run) is not None or len(set(run.records.sigma.tolist())) > 1:
        return "input"
    return "coordinate" if run.manifest.plan.noise in DIAGONAL_NOISES else None


def levels_of(run: Run) -> tuple[float, ...] | None:
    """The σ among which a chooser gives each point its own, ascending; None where there are no such levels."""
    levels = run.manifest.plan.sigma_levels
    return None if levels is None else tuple(map(float, levels))


def chooser_of(run: Run) -> str | None:
    """What the chooser among levels is called: ``constant:1`` where it is that; None where there are no levels."""
    chooser = run.manifest.plan.chooser
    if levels_of(run) is None or chooser is None:
        return None
    if "constant" in chooser:
        return f"constant:{shown_name(str(chooser['constant']))}"
    return shown_name(str(chooser.get("name") or "unnamed"))


def alpha_of_class(plan: PlanStatement) -> float:
    """The α that the bound of an input's class has: the plan's, less a chooser's part."""
    alpha = plan.known(PlanStatement.alpha)
    if plan.sigma_levels is None or plan.chooser is None:
        return alpha
    return class_alpha(alpha, "constant" in plan.chooser)


def own_sigmas(sigmas: NDArray[np.float64] | Sequence[float]) -> str | None:
    """``0.05 to 0.31, median 0.12``, for runs and logs that have a σ for each input; None where all have the same."""
    if len(set(map(float, sigmas))) <= 1:
        return None
    return f"{np.min(sigmas):.4g} to {np.max(sigmas):.4g}, median {np.median(sigmas):.4g}"


def sigma_mark(search: str | None, per: Per | None, levels: Sequence[float] | None = None) -> str:
    """What stands behind a σ that isn't simply the noise's; else nothing.

    `` (ladder search)``, `` (per input)``, or `` (largest of 3 levels)``.
    """
    if levels is not None:
        return f" (largest of {len(levels)} levels)"
    if search is not None:
        return f" ({search} search)"
    return "" if per is None else f" (per {per})"


@dataclass(frozen=True)
class VotesUsed:
    """``total`` votes, those that chose classes and pilots included; ``share`` of what n for every input would take.

    ``reasons`` counts why voting ended, the commonest first; ``asked`` names the rule that wanted certain radii only.
    """

    total: int
    inputs: int
    mean: float
    share: float
    reasons: tuple[tuple[str, int], ...]
    asked: str | None = None

    def in_words(self) -> str:
        """One sentence."""
        why = ", ".join(f"{count} {reason}" for reason, count in self.reasons)
        return (
            f"{self.total:,} votes in all, {self.mean:,.0f} for an input on average: {100 * self.share:.1f} % of the "
            f"fixed protocol's; ended by: {why}"
            + (
                ""
                if self.asked is None
                else f". Only {self.asked} was asked: other radii, and the ACR, stay lower"
            )
        )


def stops_of(plan: PlanStatement) -> tuple[Stop, ...]:
    """The stop rules and the budget that a run's plan states."""
    return parse_stops(plan.stops)


def votes_used(run: Run) -> VotesUsed | None:
    """What the run's votes came to; None where every input had the same number, or the votes are unknown.

    Of runs with σ levels, whose records keep a part of them, :func:`~smoothcert.analysis.overview.levels_used` says it.
    """
    plan = run.manifest.plan
    stops = stops_of(plan)
    if plan.sigma_levels is not None or not stops or not run.records or not run.records.has_votes():
        return None
    if plan.n0 is None or plan.n is None:
        return None
    total = sum(record_votes(record, budget_among(stops)) for record in run.records)
    inputs = len(run.records)
    reasons = Counter((stopped or "budget").partition(":")[0] for stopped in run.records.stopped)
    share = total / (inputs * (plan.n0 + plan.n))
    return VotesUsed(total, inputs, total / inputs, share, tuple(reasons.most_common()), asked_only(plan))


def asked_only(plan: PlanStatement) -> str | None:
    """The rule that wanted certain radii only, if the plan has one."""
    return next((rule.text for rule in stops_of(plan) if rule.goal == "decision"), None)


def votes_in_words(run: Run) -> str:
    """The plan's n as a caption says it: ``n = 100000``, or ``n ≤ 100000`` where voting may end early."""
    plan = run.manifest.plan
    return f"n ≤ {most_votes(plan)}" if stops_of(plan) else f"n = {plan.n}"


def most_votes(plan: PlanStatement) -> int:
    """The most estimation votes that the plan can give one input."""
    return budget_among(stops_of(plan)).most_votes(plan.known(PlanStatement.n))


def spreads_a_total(plan: PlanStatement) -> bool:
    """Whether one total of votes was spread over the inputs: then their results depend on one another."""
    return budget_among(stops_of(plan)).spreads


def inputs_depend(manifest: Manifest) -> bool:
    """Whether one input's result depends on the others': then no interval over the choice of inputs holds."""
    return manifest.subject == "memory" or spreads_a_total(manifest.plan)


def record_votes(record: Record, budget: Budget) -> int:
    """Votes of one input; a pilot's, which no record keeps, are known from the budget."""
    tallies = sum(tally.n for tally in (record.selection, record.estimation) if tally is not None)
    wrong = record.stopped is not None and record.stopped.startswith("wrong")
    return tallies + (0 if wrong else budget.pilot_votes)
