"""What became of σ levels in a run: which level inputs have, what limits their radii, and where the votes went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from smoothcert.analysis.about import chooser_of, levels_of
from smoothcert.analysis.votes import record_votes, stops_of, votes_used
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_levels import LevelEvidence
from smoothcert.sigma_levels.evidence import missing_line, read_evidence
from smoothcert.stopping import budget_among

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
    if levels_of(run) is None:
        return None
    found = read_evidence(run.path)
    for index in run.records.index.tolist():
        if index not in found:
            raise missing_line(run.path, index)
    return [found[index] for index in run.records.index.tolist()]


def decided_levels(run: Run) -> list[LevelEvidence] | None:
    """The same with what follows from the votes: how far each level is out of reach, and how far it certifies."""
    from smoothcert.smoothing.level_plans import decide_levels
    from smoothcert.smoothing.plan import CertifyPlan

    evidence = level_evidence(run)
    if evidence is None:
        return None
    plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
    nowhere = np.zeros(1)  # the input itself only places the region
    decided = (decide_levels(nowhere, plan, one).levels for one in evidence)
    return [one for one in decided if one is not None]


def votes_at_levels(run: Run) -> int | None:
    """All votes of a run with levels, which its records don't keep; None where it has none."""
    evidence = level_evidence(run)
    return None if evidence is None else sum(one.n for one in evidence)


def used_json(run: Run) -> dict[str, Any]:
    """What votes and levels came to, as far as there is something to say."""
    used = {"votes": votes_used(run), "levels": levels_used(run)}
    return {name: asdict(one) for name, one in used.items() if one is not None}


def levels_used(run: Run) -> LevelsUsed | None:
    """What the levels of a run came to; None where it has none, or no record yet."""
    evidence, sigmas, chooser = decided_levels(run), levels_of(run), chooser_of(run)
    if not evidence or sigmas is None or chooser is None:
        return None
    plan = run.manifest.plan
    budget = budget_among(stops_of(plan))
    homes = Counter(one.home for one in evidence)
    certified = (one.limit for one, radius in zip(evidence, run.records.radius.tolist()) if radius > 0)
    at_home = sum(record_votes(record, budget) for record in run.records)
    choosing = sum(tally.n for one in evidence for tally in (one.chosen, one.chooser) if tally is not None)
    elsewhere = sum(vote.selection.n + vote.estimation.n for one in evidence for vote in one.votes[1:])
    votes = {"of the chooser": choosing, "at an input's own level": at_home, "at other levels": elsewhere}
    each = plan.known(PlanStatement.n0) + plan.known(PlanStatement.n)
    return LevelsUsed(
        sigmas,
        chooser,
        tuple(homes[level] for level in range(len(sigmas))),
        dict(sorted(Counter(len(one.votes) for one in evidence).items())),
        dict(Counter(certified).most_common()),
        votes,
        sum(votes.values()) / (len(evidence) * each),
    )
