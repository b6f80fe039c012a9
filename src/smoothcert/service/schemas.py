"""The shapes of requests and answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Votes = Annotated[int, Field(ge=1, le=10**9, description="Votes for an input, at most.")]
Radius = Annotated[
    float, Field(gt=0, le=1e6, description="Stop once it is decided whether the radius is at least this.")
]
Deadline = Annotated[
    float, Field(gt=0, le=86_400, description="Seconds after which the radius reached so far is the answer.")
]
Copies = Annotated[int, Field(ge=0, le=16, description="Noisy versions of the input to show (streams only).")]


class Options(BaseModel):
    """What a request may ask for beside its inputs."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    votes: Votes | None = None
    radius: Radius | None = None
    deadline: Deadline | None = None
    copies: Copies | None = None


class Standing(BaseModel):
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


class Result(Standing):
    """The answer to one input."""

    norm: Literal["l1", "l2"]
    sigma: float
    ended: Literal["votes", "rule", "deadline", "shutdown", "memory"] = Field(description="Why voting ended.")
    reason: str | None = Field(description="What a radius asked for came to.")
    shift: float = Field(description="How far the certified region's centre is from the input.")
    radius_off_grid: float = Field(
        description="Any input this close has a grid point next to it that is certified."
    )
    source: Literal["memory", "certified", "shrunk", "abstained"] | None = Field(
        default=None, description="With a memory: where the answer is from."
    )
    record: int | None = Field(default=None, description="With a memory: the record that vouches for it.")
    promise: str | None = Field(default=None, description="With a memory: what the answer promises.")


class Results(BaseModel):
    """Answers in the order of the inputs."""

    results: list[Result]
    alpha: float = Field(description="Probability that any answer ever given about one input is wrong.")
    plan: str = Field(description="Hash of what is promised, as /v1/plan states it.")
    input_shape: list[int] = Field(description="Of one input.")


class Plan(BaseModel):
    """What is promised, in words and as data."""

    promise: str
    randomness: str
    sha256: str
    plan: dict[str, Any]
    model: dict[str, Any]
    largest_radius: float = Field(description="What n votes allow at most: the radius of a unanimous vote.")
    stateful: bool
    memory: str | None


class Problem(BaseModel):
    """Why a request wasn't answered."""

    error: str
