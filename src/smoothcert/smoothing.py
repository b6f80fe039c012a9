"""Smoothed classifiers: PREDICT and CERTIFY for any model, and the plan that states what they promise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import (
    BOUNDS,
    Bound,
    ClassBounds,
    VoteKind,
    least_prediction_votes,
    least_votes,
    top_two_p_value,
)
from smoothcert.certificates import Certificate, certificate_for
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.inputs import as_array, numbered_inputs
from smoothcert.noise import NOISES, Noise
from smoothcert.regions import L1Ball, L2Ball
from smoothcert.sampling import (
    BaseClassifier,
    Draw,
    Engine,
    Execution,
    Finished,
    Job,
    Numerics,
    Prepared,
    Procedure,
    adapt,
)
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sigma_search import Found, Problem, SigmaSearch, search_each, with_sigma
from smoothcert.tally import ABSTAIN, Phase, Tally


class TooFewVotesWarning(UserWarning):
    """n is so small that not even a unanimous vote could succeed."""


@dataclass(frozen=True)
class CertifyPlan:
    """The statistical statement: change any field and a published number may change.

    ``n0`` votes choose the class, ``n`` fresh votes bound its probability at level ``alpha``. A ``search`` first
    chooses each input's own σ, by samples of its own; the certificate is then about the classifier frozen at it.
    """

    noise: Noise
    bound: str = "two-class"
    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)
    search: SigmaSearch | None = None

    def __post_init__(self) -> None:
        BOUNDS[self.bound]
        check_count("n0", self.n0)
        check_count("n", self.n)
        check_probability("alpha", self.alpha)
        check_count("seed", self.seed, least=0)

    @property
    def rule(self) -> Bound:
        """The bound by its name."""
        return BOUNDS[self.bound]

    @property
    def certificate(self) -> Certificate:
        """The theorem that belongs to the noise."""
        return certificate_for(self.noise)

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values; equal plans have equal JSON."""
        return {
            "noise": self.noise.name,
            "sigma": self.noise.sigma,
            "norm": self.certificate.norm,
            "bound": self.bound,
            "votes": self.rule.votes,
            "n0": self.n0,
            "n": self.n,
            "alpha": self.alpha,
            "seed": self.seed,
            **asdict(self.numerics),
            **({} if self.search is None else self.search.as_json() | {"stateful": False}),
        }

    def warn_if_hopeless(self) -> None:
        """Say so when no vote, however clear, could be certified."""
        least = least_votes(self.rule, self.alpha)
        if self.n < least:
            warnings.warn(
                f"CERTIFY can only abstain: n = {self.n} votes can't succeed at alpha = {self.alpha} with the "
                f"{self.bound} bound; the smallest n that could is {least}",
                TooFewVotesWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class Certification:
    """CERTIFY's answer for one input.

    Unless it abstained: with probability at least 1−α over its votes, the smoothed classifier answers
    ``predicted`` everywhere in ``region`` (an open ball of ``radius`` in ``norm`` around the input). The smoothed
    classifier is the one with this ``sigma``, for every point of the region.
    """

    index: int
    predicted: int
    radius: float
    norm: str
    region: L2Ball | L1Ball | None
    bounds: ClassBounds
    candidate: int
    selection: Tally
    estimation: Tally
    sigma: float
    seconds: float = 0.0
    search: Found | None = None

    @property
    def abstained(self) -> bool:
        """Whether the votes were too close to certify anything."""
        return self.predicted == ABSTAIN


@dataclass(frozen=True)
class Prediction:
    """PREDICT's answer: with probability at least 1−α it is the smoothed classifier's class, or ABSTAIN."""

    index: int
    predicted: int
    p_value: float
    tally: Tally
    seconds: float = 0.0

    @property
    def abstained(self) -> bool:
        """Whether the two classes ahead were too close to tell apart."""
        return self.predicted == ABSTAIN


def decide(x: ArrayLike, plan: CertifyPlan, selection: Tally, estimation: Tally) -> Certification:
    """CERTIFY (Cohen et al. 2019) from its two tallies; refuses votes that would be used twice."""
    for tally, phase in ((selection, Phase.SELECTION), (estimation, Phase.ESTIMATION)):
        if tally.stream.phase != phase:
            raise InvalidValueError(
                f"{phase.name.lower()} needs votes of its own stream, got {tally.stream.phase.name.lower()} votes: "
                "a class may not be certified by the votes that chose it"
            )
    if selection.stream.index != estimation.stream.index:
        raise InvalidValueError(
            f"votes of input {selection.stream.index} can't choose the class of input {estimation.stream.index}"
        )
    candidate = selection.top()
    bounds = plan.rule(estimation, candidate, plan.alpha)
    radius = plan.certificate.radius(bounds)
    return Certification(
        index=estimation.stream.index,
        predicted=candidate if radius > 0 else ABSTAIN,
        radius=radius,
        norm=plan.certificate.norm,
        region=plan.certificate.region(x, bounds),
        bounds=bounds,
        candidate=candidate,
        selection=selection,
        estimation=estimation,
        sigma=plan.noise.sigma,
    )


def certify_procedure(
    x: ArrayLike, plan: CertifyPlan, found: Found | None = None
) -> Procedure[Certification]:
    """Choose a class with n0 votes, bound it with n others; ``found``: the search that the plan's σ came from."""
    selection = yield Draw(Phase.SELECTION, plan.n0)
    estimation = yield Draw(Phase.ESTIMATION, plan.n)
    return replace(decide(x, plan, selection, estimation), search=found)


def predict_procedure(n: int, alpha: float) -> Procedure[Prediction]:
    """The class ahead in n votes, if the two-sided test tells it from the runner-up at level alpha."""
    tally = yield Draw(Phase.PREDICTION, n)
    candidate = max(range(len(tally.counts)), key=tally.counts.__getitem__)
    runner_up = max(count for c, count in enumerate(tally.counts) if c != candidate)
    p_value = top_two_p_value(tally.counts[candidate], runner_up)
    return Prediction(tally.stream.index, candidate if p_value <= alpha else ABSTAIN, p_value, tally)


class SmoothedClassifier:
    """g(x) = the class the base model most often gives to x + noise, with PREDICT and CERTIFY.

    Noise is added in the units of the inputs you pass; normalisation belongs inside the model. Pass either a
    ``plan`` or its fields (``sigma`` at least). ``outputs`` and ``classes`` describe a plain function's answers;
    ``input_shape`` tells one input from a batch where the number of dimensions can't (see :meth:`certify`).
    """

    def __init__(
        self,
        model: Any,
        plan: CertifyPlan | None = None,
        *,
        sigma: float | None = None,
        noise: str = "gaussian",
        outputs: OutputKind | None = None,
        classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        execution: Execution | None = None,
        **plan_fields: Any,
    ) -> None:
        if (plan is None) == (sigma is None):
            raise InvalidValueError("give either a plan or sigma=, the standard deviation of the noise")
        if plan is None:
            assert sigma is not None
            # A sigma is a number of its own kind: NOISES holds dataclasses whose one field it is.
            plan = CertifyPlan(NOISES[noise](sigma), **plan_fields)  # type: ignore[call-arg]
        elif plan_fields:
            raise InvalidValueError(f"{', '.join(plan_fields)} belong in the plan when a plan is given")
        self.plan = plan
        self.base: BaseClassifier = adapt(model, plan.rule.votes, outputs, classes)
        if plan.search is not None:
            plan.search.check(self.base)
        self.execution = execution or Execution()
        self._input_shape = input_shape or self.base.input_shape
        self._prepared: Prepared | None = None

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape; returns the plan as it will be used."""
        if self._prepared is None or self._prepared.input_shape != tuple(input_shape):
            self._prepared = self.base.prepare(self.plan.numerics, tuple(input_shape), self.execution.device)
        return replace(self.plan, numerics=self._prepared.numerics)

    @property
    def classes(self) -> int:
        """Number of classes the model tells apart; known once it is prepared."""
        if self._prepared is None:
            raise InvalidValueError("the number of classes is known after prepare(input_shape)")
        return self._prepared.classes

    def certify(self, x: ArrayLike, index: int | None = None) -> Certification | list[Certification]:
        """Certify one input, or each input of a batch: then a list comes back.

        One input is told from a batch by ``input_shape`` where it is known (given, or read from the model);
        otherwise arrays of 1 or 3 dimensions are one input, of 2 or 4 a batch. ``index`` names the random
        stream (of the first input); by default it follows from the input's values, so equal inputs get equal
        answers and different ones independent noise.
        """
        inputs, single = self._split(x)
        answers = self.certify_batch(inputs, index)
        return answers[0] if single else answers

    def certify_batch(self, inputs: ArrayLike, index: int | None = None) -> list[Certification]:
        """Certify every input of a batch, in order."""
        numbered = numbered_inputs(as_array(inputs), index)
        found = {answer.index: answer for answer in self.certify_each(numbered)}
        return [found[i] for i, _ in numbered]

    def certify_each(
        self, inputs: Iterable[tuple[int, NDArray[Any]]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order.

        ``on_votes`` hears of votes as they are counted, and of the network evaluations of a search.
        """
        self.plan.warn_if_hopeless()
        prepared = self._prepared_inputs(inputs)
        jobs = (
            Job(i, x, plan.noise, certify_procedure(x, plan, found))
            for i, x, plan, found in self._with_sigma(prepared, on_votes)
        )
        for done in self._run(jobs, self.plan.rule.votes, on_votes):
            yield replace(done.answer, seconds=done.seconds)

    def base_class(self, x: NDArray[Any]) -> int:
        """The base model's class for one input without noise."""
        self.prepare(x.shape)
        assert self._prepared is not None
        return self._prepared.label_of(x)

    def predict(
        self, x: ArrayLike, n: int = 1000, alpha: float | None = None, index: int | None = None
    ) -> Prediction | list[Prediction]:
        """PREDICT for one input or a batch (see :meth:`certify`) with n votes at level alpha (the plan's)."""
        inputs, single = self._split(x)
        numbered = numbered_inputs(inputs, index)
        found = {answer.index: answer for answer in self.predict_each(numbered, n, alpha)}
        answers = [found[i] for i, _ in numbered]
        return answers[0] if single else answers

    def predict_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        n: int = 1000,
        alpha: float | None = None,
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs; answers come as they are ready, not in order."""
        if self.plan.search is not None:
            raise InvalidValueError("PREDICT is about one sigma for all inputs: leave the plan's search out")
        alpha = self.plan.alpha if alpha is None else alpha
        check_count("n", n)
        check_probability("alpha", alpha)
        least = least_prediction_votes(alpha)
        if n < least:
            warnings.warn(
                f"PREDICT can only abstain: n = {n} votes can't succeed at alpha = {alpha}; the smallest n that "
                f"could is {least}",
                TooFewVotesWarning,
                stacklevel=2,
            )
        jobs = (
            Job(i, x, self.plan.noise, predict_procedure(n, alpha)) for i, x in self._prepared_inputs(inputs)
        )
        for done in self._run(jobs, "hard", on_votes):
            yield replace(done.answer, seconds=done.seconds)

    def _with_sigma(
        self, inputs: Iterator[tuple[int, NDArray[Any]]], on_evaluations: Callable[[int], None] | None
    ) -> Iterator[tuple[int, NDArray[Any], CertifyPlan, Found | None]]:
        """Each input with the plan at its own σ, found before any of its certifying votes is drawn."""
        plan = self.plan
        if plan.search is None:
            yield from ((index, x, plan, None) for index, x in inputs)
            return

        def problem() -> Problem:
            assert self._prepared is not None  # taking the first input prepared the model for its shape
            return Problem(
                self.base,
                self._prepared,
                plan.noise,
                plan.rule,
                plan.n,
                plan.alpha,
                plan.seed,
                self.execution,
            )

        for i, x, found in search_each(plan.search, problem, inputs, on_evaluations):
            yield i, x, replace(plan, noise=with_sigma(plan.noise, found.sigma)), found

    def _run(
        self, jobs: Iterator[Job[Any]], votes: VoteKind, on_votes: Callable[[int], None] | None
    ) -> Iterator[Finished[Any]]:
        first = next(jobs, None)
        if first is None:
            return
        assert self._prepared is not None  # taking the first job prepared the model for its shape
        engine = Engine(self._prepared, votes, self.plan.seed, self.execution)

        def all_jobs() -> Iterator[Job[Any]]:
            yield first
            yield from jobs

        yield from engine.run(all_jobs(), on_votes)

    def _prepared_inputs(
        self, inputs: Iterable[tuple[int, NDArray[Any]]]
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Prepare the model for the first input's shape; the engine refuses any other."""
        for position, (index, x) in enumerate(inputs):
            if position == 0:
                self.prepare(x.shape)
            yield index, x

    def _split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        array = as_array(x)
        single = array.shape == self._input_shape if self._input_shape else array.ndim in (1, 3)
        return (array[np.newaxis], True) if single else (array, False)
