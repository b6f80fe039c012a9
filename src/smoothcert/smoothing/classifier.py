"""SmoothedClassifier: PREDICT and CERTIFY for any model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import VoteKind, least_prediction_votes
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.inputs import as_array, numbered_inputs
from smoothcert.noise import NOISES
from smoothcert.sampling import BaseClassifier, Engine, Execution, Finished, Job, Prepared, adapt
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sigma_search import Found, Problem, search_each, with_sigma
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.plan import CertifyPlan, TooFewVotesWarning
from smoothcert.smoothing.procedures import certify_procedure, predict_procedure


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
