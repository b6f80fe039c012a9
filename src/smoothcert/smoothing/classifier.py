"""SmoothedClassifier: PREDICT and CERTIFY for any model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import least_prediction_votes
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.noise import DEFAULT_NOISE, NOISES
from smoothcert.sampling import Draw, Execution, Finished, Job, Prepared, Procedure, adapt, one_draw
from smoothcert.sampling.ballots import OutputKind
from smoothcert.smoothing.adaptive import (
    CertifyState,
    Piloted,
    allocated_procedure,
    check_own_votes,
    forecast_for,
    piloting_procedure,
    stopping_procedure,
)
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.array_interface import ArrayInterface, Inputs, Labels, OnVotes, labels_by_index
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.inputs import as_array, by_column, numbered_inputs
from smoothcert.smoothing.loaders import from_loader, is_loader
from smoothcert.smoothing.plan import CertifyPlan, TooFewVotesWarning
from smoothcert.smoothing.planned_model import Numbered, PlannedModel
from smoothcert.smoothing.procedures import predict_procedure, predict_until_decided
from smoothcert.smoothing.streaming import certify_states, check_streams
from smoothcert.smoothing.voting import with_own_plans
from smoothcert.tally import ABSTAIN, Phase, Tally

R = TypeVar("R")
Answer = TypeVar("Answer", Certification, Prediction)


class SmoothedClassifier(PlannedModel, ArrayInterface):
    """g(x) = the class the base model most often gives to x + noise, with PREDICT and CERTIFY.

    Noise is added in the units of the inputs you pass; normalisation belongs inside the model. Pass either a
    ``plan`` or its fields (``sigma`` at least). ``outputs``, ``classes``, ``output``, ``input_dtype``, ``constants``
    and ``thread_safe`` say what the model doesn't: see :func:`~smoothcert.sampling.adapt`. ``input_shape`` tells one
    input from a batch where the number of dimensions can't (see :meth:`certify`).
    """

    def __init__(
        self,
        model: Any,
        plan: CertifyPlan | None = None,
        *,
        sigma: float | None = None,
        noise: str = DEFAULT_NOISE,
        outputs: OutputKind | None = None,
        classes: int | None = None,
        output: str | None = None,
        input_dtype: str | None = None,
        constants: Mapping[str, ArrayLike] | None = None,
        thread_safe: bool | None = None,
        input_shape: tuple[int, ...] | None = None,
        execution: Execution | None = None,
        **plan_fields: Any,
    ) -> None:
        if (plan is None) == (sigma is None):
            raise InvalidValueError("give either a plan or sigma=, the standard deviation of the noise")
        if plan is None:
            assert sigma is not None
            plan = CertifyPlan(NOISES[noise](sigma), **plan_fields)
        elif plan_fields:
            raise InvalidValueError(f"{', '.join(plan_fields)} belong in the plan when a plan is given")
        if plan.sigma_levels is not None:
            raise InvalidValueError(
                "a plan with sigma levels is for a LevelledClassifier, which has a chooser"
            )
        base = adapt(
            model,
            plan.confidence_bound.votes,
            outputs,
            classes,
            output=output,
            thread_safe=thread_safe,
            input_dtype=input_dtype,
            constants=constants,
        )
        super().__init__(base, plan, execution, input_shape)

    def __repr__(self) -> str:
        """The model's name and the plan."""
        return f"SmoothedClassifier({self.base.name}, {self.plan!r})"

    def holding(self, columns: ArrayLike | Sequence[str]) -> HoldingClassifier:
        """The same with no noise on some columns (numbers, names, or a mask of an input's shape): categories, say.

        Certificates are then about changes of the others.
        """
        return HoldingClassifier(self, columns)

    def certify_each(
        self, inputs: Inputs, on_votes: OnVotes | None = None, labels: Labels | None = None
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order.

        ``on_votes`` hears of votes as they are counted, and of the network evaluations of a search. ``labels`` gives
        the label that belongs to an index, for rules that need it.
        """
        self.settle_seed()
        self._check_rules(labels is not None)
        self.plan.warn_if_hopeless()
        forecast = forecast_for(self.plan)

        def jobs(prepared: Prepared, given: Numbered) -> Iterator[Job[Certification]]:
            own = with_own_plans(self.plan, self.base, prepared, self.execution, given, on_votes)
            for i, x, plan, found in own:
                procedure = stopping_procedure(
                    x,
                    replace(plan, numerics=prepared.numerics),  # looks lie on whole blocks, which it settles
                    found=found,
                    label=None if labels is None else labels(i),
                    forecast=forecast if found is None else None,
                )
                yield Job(i, x, plan.noise, procedure)

        yield from self._told(self._run(inputs, jobs, on_votes))

    def certify_stream(
        self, x: ArrayLike, index: int | None = None, label: Any = None
    ) -> Iterator[CertifyState]:
        """Certify one input step by step: votes so far, class, bounds and radius; the last state has the answer.

        The plan's bound must be anytime-valid. Then the radii of *all* states hold together with probability at least
        1−α: stop iterating whenever you like, for whatever reason, and the last radius you saw is a certificate. So is
        the largest one you saw.
        """
        self.settle_seed()
        check_streams(self.plan)
        self._check_rules(label is not None)
        inputs, single = self.split(x)
        if not single:
            raise InvalidValueError(
                f"certify_stream takes one input, got an array of shape {as_array(x).shape}"
            )
        ((index, one),) = numbered_inputs(inputs.copy(), index)  # the caller's may change between two states
        if label is not None:
            label = labels_by_index([index], [label], self.class_names)(index)
        plan = self.prepare(one.shape)
        prepared = self.prepared(one.shape)
        states = certify_states(plan, prepared, self.execution, x=one, index=index, label=label)
        return (
            replace(state, certification=state.certification and self._named(state.certification))
            for state in states
        )

    def pilot_each(
        self, inputs: Inputs, labels: Labels, on_votes: OnVotes | None = None
    ) -> Iterator[tuple[int, Piloted]]:
        """The votes that an allocation of a total is made from; none of them certifies anything."""
        self.settle_seed()
        for done in self._cast(inputs, lambda i, _: piloting_procedure(self.plan, labels(i)), on_votes):
            yield done.job.index, done.answer

    def cast_each(
        self, inputs: Inputs, votes: int, on_votes: OnVotes | None = None
    ) -> Iterator[tuple[int, Tally]]:
        """So many votes on each input, of the stream of pilots: for planning, and none of them certifies anything."""
        self.settle_seed()
        for done in self._cast(inputs, lambda *_: one_draw(Draw(Phase.PILOT, votes)), on_votes):
            yield done.job.index, done.answer

    def certify_allocated(
        self,
        inputs: Inputs,
        piloted: Mapping[int, Piloted],
        votes: Mapping[int, int],
        labels: Labels,
        on_votes: OnVotes | None = None,
    ) -> Iterator[Certification]:
        """Certify inputs with the numbers of fresh ``votes`` that an allocation gave them."""

        def procedure(i: int, x: NDArray[Any]) -> Procedure[Certification]:
            return allocated_procedure(x, self.plan, piloted[i], labels(i), votes.get(i, 0))

        yield from self._told(self._cast(inputs, procedure, on_votes))

    def base_class(self, x: NDArray[Any]) -> int:
        """The base model's class for one input without noise."""
        return self.prepared(x.shape).label_of(x)

    def predict_each(
        self,
        inputs: Inputs,
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
        until_decided: int | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs; answers come as they are ready, not in order."""
        if self.plan.search is not None:
            raise InvalidValueError("PREDICT is about one sigma for all inputs: leave the plan's search out")
        alpha = self._settle_prediction(n if until_decided is None else until_decided, alpha)
        least = least_prediction_votes(alpha)
        if until_decided is None and n < least:
            warnings.warn(
                f"PREDICT can only abstain: n = {n} votes can't succeed at alpha = {alpha}; the smallest n that "
                f"could is {least}",
                TooFewVotesWarning,
                stacklevel=2,
            )

        def procedure(_: int, x: NDArray[Any]) -> Procedure[Prediction]:
            error = self.plan.for_shape(x.shape).sampler_error
            if until_decided is not None:
                return predict_until_decided(until_decided, alpha, error)
            return predict_procedure(n, alpha, error)

        yield from self._told(self._cast(inputs, procedure, on_votes))

    def _settle_prediction(self, n: int, alpha: float | None) -> float:
        """The level of a prediction by n votes, the plan's by default, once both are checked and there is a seed."""
        self.settle_seed()
        alpha = self.plan.alpha if alpha is None else alpha
        check_count("n", n)
        return check_probability("alpha", alpha)

    def _check_rules(self, labelled: bool) -> None:
        """Refuse rules that can't work here, before any vote is spent."""
        check_own_votes(self.plan)
        for each in self.plan.stops:
            if each.needs_label and not labelled:
                raise InvalidValueError(
                    f"the stopping rule {each.text!r} needs the label of every input: give labels, or leave it out"
                )

    def _cast(
        self,
        inputs: Inputs,
        procedure: Callable[[int, NDArray[Any]], Procedure[R]],
        on_votes: OnVotes | None,
    ) -> Iterator[Finished[R]]:
        """A procedure for each input, at the plan's own noise."""
        noise = self.plan.noise
        return self._run(
            inputs, lambda _, given: (Job(i, x, noise, procedure(i, x)) for i, x in given), on_votes
        )

    def _told(self, finished: Iterator[Finished[Answer]]) -> Iterator[Answer]:
        """Answers with their time and what the model calls their class."""
        return (self._named(replace(done.answer, seconds=done.seconds)) for done in finished)

    def _named(self, answer: Answer) -> Answer:
        """The answer with what the model calls its class."""
        names, predicted = self.class_names, answer.predicted
        return answer if names is None or predicted == ABSTAIN else replace(answer, label=names[predicted])

    def split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Inputs as a batch, and whether ``x`` was one of them alone."""
        shape, loader = self._input_shape, is_loader(x)
        given = from_loader(x, shape) if loader else by_column(x, self.base.feature_names)
        array = as_array(given)
        if shape and array.shape[1:] != shape and (loader or array.shape != shape):
            rows = ", ".join(["rows", *map(str, shape)])
            raise InvalidValueError(
                f"{self.base.name} takes inputs of shape {shape}, got an array of shape {array.shape}: neither one "
                f"input nor a batch of shape ({rows})"
            )
        single = not loader and (array.shape == shape if shape else array.ndim in (1, 3))
        return (array[np.newaxis], True) if single else (array, False)
