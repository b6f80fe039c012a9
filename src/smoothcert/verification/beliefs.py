"""What follows from a run's files, and what can't be seen in them."""

from __future__ import annotations

from smoothcert.verification.levels import Levels
from smoothcert.verification.logs import Log
from smoothcert.verification.report import Report
from smoothcert.verification.statement import Plan, Statement


def verified(statement: Statement, report: Report) -> list[str]:
    """What was recomputed."""
    plan = statement.plan
    if not report.records:
        return ["run.json alone: there is no record yet, and nothing was recomputed"]
    if plan is None:
        return _of_a_log(Log.of(statement))
    found = [
        f"votes: {plan.n0} to choose the class and {_votes(plan)} others to certify it, each from the first vote of "
        f"the input's own stream (seed {plan.seed})",
    ]
    if plan.levels is not None:
        found += _of_levels(plan, plan.levels)
    elif plan.stateful:
        found.append(
            f"{report.recomputed} answers claim no more than the input's own votes support "
            f"({plan.bound} bound, α = {float(plan.alpha):g})"
        )
    else:
        found.append(
            f"classes, abstentions and radii, recomputed from the votes ({plan.bound} bound, α = "
            f"{float(plan.alpha):g}, {plan.noise} noise) in whole numbers and 60-digit intervals"
        )
    if plan.diagonal:
        found.append("sigmas.npy is the vector that the plan states")
    if plan.search is not None and not plan.stateful:
        found.append("each input's σ is the one that its search's line states")
    if "total" in plan.rules:
        found.append("each input's number of votes is the one in allocation.json, and they add up")
    if statement.model.get("held") is not None:
        found.append(
            "radii are about changes of the coordinates that aren't held: of inputs whose held ones differ they say "
            "nothing"
        )
    if plan.stream == 2:
        found.append("what sampling on a grid costs (sampler_error) is paid for in every bound")
    return found


def believed(statement: Statement, report: Report) -> list[str]:
    """What had to be taken on trust."""
    plan = statement.plan
    if plan is None:
        return [
            "every radius: the log it was imported from keeps no votes, and doesn't prove how it was made",
            *_data_name(statement, report),
        ]
    again = report.replayed
    found = [
        f"that the votes of the other {report.records - again} inputs are the model's, too"
        if again
        else "that the votes are the model's, cast on these inputs with this noise (--replay casts some of them again)",
        "that the seed was chosen before the inputs were, and the plan before the votes; and that no better run "
        "was preferred",
        f"that the model and the data are the ones meant by {_hash(statement.model)} and {_hash(statement.data)}",
        "the base classifier's answers without noise"
        if again
        else "labels, and the base classifier's answers without noise",
        *_data_name(statement, report),
    ]
    if plan.stream == 1:
        found.append(
            "the arithmetic of x + noise: votes of this version were cast with floating-point noise, which the theorem "
            "takes for real numbers, and its rounding can be exploited (Voráček & Hein 2023)"
        )
    else:
        found.append(
            "that votes were drawn on the grid that the plan states, from random bits worthy of the name"
        )
    if plan.search is not None:
        found.append(
            "that each σ was found without looking at the votes that certify; a certificate is about the classifier "
            "frozen at that σ"
        )
    if plan.levels is not None and plan.levels.chooser is not None:
        found.append(
            f"that the chooser is the one meant by {_hash(plan.fields['chooser'])}: one chooser for all inputs, chosen "
            "before them"
        )
    if "pilot" in plan.rules:
        found.append("that numbers of votes were chosen by pilots alone, which aren't kept")
    if "total" in plan.rules:
        found.append("that allocation.json was written before the first certifying vote, by the pilots alone")
    if "recertified_from" in plan.fields:
        found.append("that α and bound were chosen without looking at the votes, which were there already")
    if plan.stateful:
        found.append(
            f"the memory: {report.records - report.recomputed} answers rest on regions that it alone keeps, and all "
            "hold for questions asked of that memory only"
        )
    return found


def _of_a_log(log: Log) -> list[str]:
    found = [
        "that class, radius and abstention of each input can be together (there are no votes to recompute them from)"
    ]
    if log.extent is not None:
        found.append(
            "that no radius is larger than noise, n, α and bound allow, as they are stated: "
            f"{log.extent.high:.6g} σ, but for how radii are printed"
        )
    return found


def _data_name(statement: Statement, report: Report) -> list[str]:
    """What a run calls its data, unless they were at hand and are called that."""
    name, origin = statement.data.get("name"), statement.fields.get("origin")
    if report.data_known or not isinstance(name, str):
        return []
    split = origin.get("split") if isinstance(origin, dict) else None
    return [f"that the data are {name!r}{f', {split!r} split' if split else ''}, as run.json calls them"]


def _of_levels(plan: Plan, levels: Levels) -> list[str]:
    alpha = float(levels.level_alpha(plan.alpha))
    if levels.chooser is None:
        chosen = f"level {levels.constant} for every input, as the plan states"
    else:
        chosen = (
            "each input's level is the median of its chooser's selection votes, and the distance within which the "
            f"median can't become another level was recomputed from others (α = {levels.chooser.alpha:g})"
        )
    return [
        chosen,
        f"the class and radius at every level that was looked at ({plan.bound} bound at the input's own, an anytime "
        f"one at the others, α = {alpha:g}, {plan.noise} noise), and from them and the distances the radius of the "
        "whole, in whole numbers and 60-digit intervals",
    ]


def _votes(plan: Plan) -> str:
    return f"{plan.n}" if not plan.rules else f"as many as {' and '.join(plan.rules)} allow (n = {plan.n})"


def _hash(part: dict[str, object]) -> str:
    stated = part.get("sha256")
    return f"SHA-256 {stated[:12]}…" if isinstance(stated, str) else "no hash at all"
