"""How many votes a run took, and why they ended: of interest where the plan lets them end early."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from smoothcert.runs import Manifest, Record, Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.stopping import Budget, Stop, budget_among, parse_stops


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

    Of runs with σ levels, whose records keep a part of them, :func:`~smoothcert.analysis.levels.levels_used` says it.
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
