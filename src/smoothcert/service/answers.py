"""Answers as they are sent: a result for each input, what the whole server promises, and their OpenAPI description."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from smoothcert.bounds.base import ClassBounds
from smoothcert.perturb.base import largest_radius
from smoothcert.plain_text import norm_name
from smoothcert.regions.changes import ChangeRegion
from smoothcert.service.engine import VotingEngine
from smoothcert.service.voting import Ask, Standing
from smoothcert.smoothing.memory import MemoryAnswer
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import ABSTAIN

_SECRET_IN_WORDS = {
    "operating system": "a secret that this server drew when it was started and keeps nowhere: a restart draws fresh "
    "votes, so the promise is for each life of the server",
    "secret file": "a secret in a file, which outlives restarts: so does the promise",
    "seed": "a seed that the operator gave: everyone who knows it can look for inputs that it flatters, and for those "
    "nothing is promised",
}

Labels = Sequence[str] | None
"""What classes are called; None where they have no names."""


def standing_json(standing: Standing, labels: Labels) -> dict[str, Any]:
    """Where an input stands: what every event of a stream says."""
    return {
        "votes": standing.votes,
        "predicted": standing.predicted,
        "label": _label(standing.predicted, labels),
        "abstained": standing.predicted == ABSTAIN,
        "radius": standing.radius if standing.predicted != ABSTAIN else 0.0,
        "candidate": standing.chosen,
        "candidate_label": _label(standing.chosen, labels),
        "runner_up": standing.runner_up,
        "runner_up_label": _label(standing.runner_up, labels),
        "lower": standing.bounds.lower,
        "upper": standing.bounds.upper,
        "counts": list(standing.counts),
    }


def result_json(ask: Ask, labels: Labels, remembered: MemoryAnswer | None = None) -> dict[str, Any]:
    """The answer to one input."""
    plan, certification = ask.voting.plan, ask.certification
    result = _result(ask.standing, plan, labels) | {"ended": ask.ending, "reason": ask.reason}
    if certification is not None:
        result |= {
            "shift": certification.evidence.shift,
            "radius_off_grid": certification.evidence.radius_off_grid,
        }
        region: Any = certification.region
        if isinstance(region, ChangeRegion):
            result["changes"] = list(region.rows())
    return result if remembered is None else result | _remembered(remembered, labels)


def recalled_json(answer: MemoryAnswer, plan: CertifyPlan, classes: int, labels: Labels) -> dict[str, Any]:
    """The answer to an input that a stored region holds: no vote was cast."""
    standing = Standing(0, answer.predicted, answer.radius, ClassBounds(0.0, 1.0), (0,) * classes)
    return _result(standing, plan, labels) | {"ended": "memory"} | _remembered(answer, labels)


def unasked_json(plan: CertifyPlan, classes: int, labels: Labels) -> dict[str, Any]:
    """The answer where the time was up before an input had its own σ: nothing is certified."""
    nothing = Standing(0, None, 0.0, ClassBounds(0.0, 1.0), (0,) * classes)
    answer = MemoryAnswer(ABSTAIN, None, "abstained", None)
    return _result(nothing, plan, labels) | {"ended": "deadline"} | _remembered(answer, labels)


def _result(standing: Standing, plan: CertifyPlan, labels: Labels) -> dict[str, Any]:
    facts = {"norm": plan.certificate.norm, "sigma": plan.noise.sigma, "reason": None}
    return standing_json(standing, labels) | facts | {"shift": 0.0, "radius_off_grid": 0.0}


def _remembered(answer: MemoryAnswer, labels: Labels) -> dict[str, Any]:
    return {
        "predicted": answer.predicted,
        "label": _label(answer.predicted, labels),
        "abstained": answer.abstained,
        "radius": answer.radius,
        "source": answer.source,
        "record": answer.record,
        "promise": answer.promise,
        # A stored region is around the input as it was given, not around a grid point.
        "shift": 0.0,
        "radius_off_grid": 0.0,
    }


def _label(number: int | None, labels: Labels) -> str | None:
    return None if number is None or number == ABSTAIN or labels is None else labels[number]


def _scale(plan: CertifyPlan) -> str:
    words = plan.noise.in_words()
    return f"of σ = {plan.noise.sigma:g}" if words is None else f"({words})"


def plan_json(engine: VotingEngine, labels: Labels, memory: str | None) -> dict[str, Any]:
    """What is promised, in words and as data."""
    plan, model = engine.plan, {"classes": engine.prepared.classes, "labels": labels}
    promise = (
        "For any input chosen without knowledge of the server's secret: with probability at least "
        # 1−α with the digits that tell it from 1.
        f"{1 - plan.alpha:.{max(2, math.ceil(-math.log10(plan.alpha)))}f} over the votes, no answer ever given about "
        "it is wrong, however often, by whomever and "
        "with whatever deadlines it is asked about. An answer with a class and a radius says that the model smoothed "
        f"with {plan.noise.name} noise {_scale(plan)} gives this class to every point of the noise's grid "
        f"closer than the radius in {norm_name(plan.certificate.norm)}. An answer that abstains says nothing."
    )
    if memory is not None:
        promise += (
            " Answers come out of a memory: a question asked after an answer, at any input inside its region, is "
            "answered with the same class, as long as the memory is complete. Each input has a σ of its own where the "
            "plan searches for one, and the certificate is then about the classifier frozen at it."
        )
    return {
        "promise": promise,
        "randomness": f"The votes on an input follow from the input and {_SECRET_IN_WORDS[engine.secret.origin]}.",
        "sha256": engine.plan_hash,
        "plan": engine.statement["plan"],
        "model": engine.statement["model"] | model,
        "largest_radius": largest_radius(plan.noise, plan.confidence_bound, plan.n, plan.alpha),
        "stateful": memory is not None,
        "memory": memory,
    }


# The same as OpenAPI describes it.

Votes = Annotated[int, Field(ge=1, le=10**9, description="Votes for an input, at most.")]
Radius = Annotated[
    float, Field(gt=0, le=1e6, description="Stop once it is decided whether the radius is at least this.")
]
Deadline = Annotated[
    float, Field(gt=0, le=86_400, description="Seconds after which the radius reached so far is the answer.")
]
Copies = Annotated[int, Field(ge=0, le=16, description="Noisy versions of the input to show.")]


class PredictOptions(BaseModel):
    """What a request may ask for beside its inputs."""

    model_config = ConfigDict(allow_inf_nan=False)

    votes: Votes | None = None
    deadline: Deadline | None = None


class CertifyOptions(PredictOptions):
    """As well as a radius to decide."""

    radius: Radius | None = None


class StreamOptions(CertifyOptions):
    """As well as noisy copies."""

    copies: Copies | None = None


class StandingModel(BaseModel):
    """Where an input stands; the radius holds now, and together with all others ever given of the input."""

    votes: int = Field(description="Votes so far that bound the class's probability.")
    predicted: int = Field(description="The certified class by number; -1 if there is none.")
    label: str | None = Field(description="What the model calls it.")
    abstained: bool = Field(description="Whether nothing is certified.")
    radius: float = Field(
        description="Everything closer than this is given the same class; 0 if nothing is certified."
    )
    candidate: int | None = Field(description="The class that is being certified, certain or not.")
    candidate_label: str | None
    runner_up: int | None = Field(description="The class with the most votes beside it.")
    runner_up_label: str | None
    lower: float = Field(description="Bound of the candidate's probability, from below.")
    upper: float = Field(description="Bound of every other class's probability, from above.")
    counts: list[int] = Field(description="Votes by class.")


class ResultModel(StandingModel):
    """The answer to one input."""

    norm: Literal["l0", "l1", "l2", "l2/sigma"]
    sigma: float
    ended: Literal["votes", "rule", "deadline", "shutdown", "memory"] = Field(description="Why voting ended.")
    reason: str | None = Field(description="What a radius asked for came to.")
    shift: float = Field(description="How far the certified region's centre is from the input.")
    radius_off_grid: float = Field(
        description="Any input this close has a grid point next to it that is certified."
    )
    changes: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of tables: for each number of changed categories how far numbers may move (rho, in units of σ, "
        "and each one alone in its own units), and a sentence.",
    )
    source: Literal["memory", "certified", "shrunk", "abstained"] | None = Field(
        default=None, description="With a memory: where the answer is from."
    )
    record: int | None = Field(default=None, description="With a memory: the record that vouches for it.")
    promise: str | None = Field(default=None, description="With a memory: what the answer promises.")


class ResultsModel(BaseModel):
    """Answers in the order of the inputs."""

    results: list[ResultModel]
    alpha: float = Field(description="Probability that any answer ever given about one input is wrong.")
    plan: str = Field(description="Hash of what is promised, as /v1/plan states it.")
    input_shape: list[int] = Field(description="Of one input.")


class PlanModel(BaseModel):
    """What is promised, in words and as data."""

    promise: str
    randomness: str
    sha256: str
    plan: dict[str, Any]
    model: dict[str, Any]
    largest_radius: float = Field(description="What n votes allow at most: the radius of a unanimous vote.")
    stateful: bool
    memory: str | None


class ProblemModel(BaseModel):
    """Why a request was not answered."""

    error: str
