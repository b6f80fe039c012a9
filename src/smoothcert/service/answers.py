"""Answers as they are sent: a result for each input, and what the whole server promises."""

from __future__ import annotations

import math
from typing import Any

from smoothcert.certificates import largest_radius
from smoothcert.plain_text import norm_name
from smoothcert.region_memory import MemoryAnswer
from smoothcert.service.asks import Ask
from smoothcert.service.engine import VotingEngine
from smoothcert.service.voting import Standing
from smoothcert.smoothing import CertifyPlan
from smoothcert.tally import ABSTAIN

WAITS = {
    "operating system": "a secret that this server drew when it was started and keeps nowhere: a restart draws fresh "
    "votes, so the promise is for each life of the server",
    "secret file": "a secret in a file, which outlives restarts: so does the promise",
    "seed": "a seed that the operator gave: whoever knows it can look for inputs that it flatters, and for those "
    "nothing is promised",
}


class Names:
    """What classes are called; their numbers where they have no names."""

    def __init__(self, names: tuple[Any, ...] | None) -> None:
        self._names = names

    def of(self, number: int | None) -> str | None:
        """A class's name; None for no class, or one without a name."""
        if number is None or number == ABSTAIN or self._names is None:
            return None
        return str(self._names[number])

    def listed(self) -> list[str] | None:
        """All of them in order."""
        return None if self._names is None else [str(name) for name in self._names]


def standing_json(standing: Standing, names: Names) -> dict[str, Any]:
    """Where an input stands: what every event of a stream says."""
    return {
        "votes": standing.votes,
        "predicted": standing.predicted,
        "label": names.of(standing.predicted),
        "abstained": standing.predicted == ABSTAIN,
        "radius": standing.radius if standing.predicted != ABSTAIN else 0.0,
        "candidate": standing.chosen,
        "candidate_label": names.of(standing.chosen),
        "runner_up": standing.runner_up,
        "runner_up_label": names.of(standing.runner_up),
        "lower": standing.bounds.lower,
        "upper": standing.bounds.upper,
        "counts": list(standing.counts),
    }


def result_json(ask: Ask, names: Names, remembered: MemoryAnswer | None = None) -> dict[str, Any]:
    """The answer to one input."""
    found, plan = ask.certification, ask.voting.plan
    result = standing_json(ask.standing, names) | {
        "norm": plan.certificate.norm,
        "sigma": plan.noise.sigma,
        "ended": ask.ending,
        "reason": ask.reason,
        "shift": 0.0 if found is None else found.shift,
        "radius_off_grid": 0.0 if found is None else found.radius_off_grid,
    }
    return result if remembered is None else result | _remembered(remembered, names)


def recalled_json(answer: MemoryAnswer, plan: CertifyPlan, classes: int, names: Names) -> dict[str, Any]:
    """The answer to an input that a stored region holds: no vote was cast."""
    nothing: dict[str, Any] = {
        "votes": 0,
        "candidate": answer.predicted,
        "candidate_label": names.of(answer.predicted),
        "runner_up": None,
        "runner_up_label": None,
        "lower": 0.0,
        "upper": 1.0,
        "counts": [0] * classes,
        "norm": plan.certificate.norm,
        "sigma": plan.noise.sigma,
        "ended": "memory",
        "reason": None,
        "shift": 0.0,
        "radius_off_grid": 0.0,
    }
    return nothing | _remembered(answer, names)


def unasked_json(plan: CertifyPlan, classes: int, names: Names) -> dict[str, Any]:
    """The answer where the time was up before an input had a σ of its own: nothing is certified."""
    nothing = MemoryAnswer(ABSTAIN, None, "abstained", None)
    found = recalled_json(nothing, plan, classes, names)
    return found | {"candidate": None, "candidate_label": None, "ended": "deadline"}


def _remembered(answer: MemoryAnswer, names: Names) -> dict[str, Any]:
    return {
        "predicted": answer.predicted,
        "label": names.of(answer.predicted),
        "abstained": answer.abstained,
        "radius": answer.radius,
        "source": answer.source,
        "record": answer.record,
        "promise": answer.promise,
        # A stored region is around the input as it was given, not around a grid point.
        "shift": 0.0,
        "radius_off_grid": 0.0,
    }


def plan_json(engine: VotingEngine, names: Names, memory: str | None) -> dict[str, Any]:
    """What is promised, in words and as data."""
    plan = engine.plan
    return {
        "promise": promise(engine, memory is not None),
        "randomness": f"The votes on an input follow from the input and {WAITS[engine.secret.origin]}.",
        "sha256": engine.plan_hash,
        "plan": engine.statement["plan"],
        "model": {**engine.statement["model"], "classes": engine.prepared.classes, "labels": names.listed()},
        "largest_radius": largest_radius(plan.noise, plan.confidence_bound, plan.n, plan.alpha),
        "stateful": memory is not None,
        "memory": memory,
    }


def promise(engine: VotingEngine, remembered: bool) -> str:
    """The server's promise in words."""
    plan = engine.plan
    told = (
        "For any input chosen without knowledge of the server's secret: with probability at least "
        f"{_share(plan.alpha)} over the votes, no answer ever given about it is wrong, however often, by whomever and "
        "with whatever deadlines it is asked about. An answer with a class and a radius says that the model smoothed "
        f"with {plan.noise.name} noise of σ = {plan.noise.sigma:g} gives this class to every point of the noise's grid "
        f"closer than the radius in {norm_name(plan.certificate.norm)}. An answer that abstains says nothing."
    )
    if remembered:
        told += (
            " Answers come out of a memory: a question asked after an answer, at any input inside its region, is "
            "answered with the same class, as long as the memory is complete. Each input has a σ of its own where the "
            "plan searches for one, and the certificate is then about the classifier frozen at it."
        )
    return told


def _share(alpha: float) -> str:
    """1−α with the digits that tell it from 1."""
    return f"{1 - alpha:.{max(2, math.ceil(-math.log10(alpha)))}f}"
