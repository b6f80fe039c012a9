"""SmoothedClassifier: PREDICT and CERTIFY for any model."""

from __future__ import annotations

import copy
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import VoteKind, least_prediction_votes
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.noise import DEFAULT_NOISE, NOISES, exact_type
from smoothcert.sampling import (
    BaseClassifier,
    Draw,
    Execution,
    Finished,
    Job,
    Numerics,
    Prepared,
    Procedure,
    adapt,
    one_draw,
)
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.numerics import AUTO_DTYPE
from smoothcert.sigma_search import Problem, SearchResult, search_each
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
from smoothcert.smoothing.certifications import Certifications
from smoothcert.smoothing.holding import HoldingClassifier
from smoothcert.smoothing.inputs import (
    as_array,
    by_column,
    class_numbers,
    from_loader,
    naming_rows,
    numbered_inputs,
)
from smoothcert.smoothing.plan import CertifyPlan, TooFewVotesWarning
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.smoothing.progress import with_progress
from smoothcert.smoothing.streaming import certify_states, check_streams
from smoothcert.smoothing.voting import engine_for
from smoothcert.stopping import RadiusForecast
from smoothcert.tally import ABSTAIN, Phase, Tally

Answer = TypeVar("Answer", Certification, Prediction)

_SETTLING = threading.Lock()


class SmoothedClassifier:
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
        self.plan = plan
        self.base: BaseClassifier = adapt(
            model,
            plan.confidence_bound.votes,
            outputs,
            classes,
            output=output,
            thread_safe=thread_safe,
            input_dtype=input_dtype,
            constants=constants,
        )
        if plan.search is not None:
            plan.search.check(self.base)
        self.execution = execution or Execution()
        self._input_shape = input_shape or self.base.input_shape
        self._prepared: Prepared | None = None
        self._order: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        """The model's name and the plan."""
        return f"SmoothedClassifier({self.base.name}, {self.plan!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model made ready to vote, which belongs to this process; the seed is in the plan."""
        return vars(self) | {"_prepared": None}

    def __copy__(self) -> SmoothedClassifier:
        """What was made ready is shared by the copies of one process."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def in_order(self, order: tuple[int, ...] | None) -> SmoothedClassifier:
        """The same classifier with classes numbered otherwise: class c is the model's class ``order[c]``."""
        if order is None:
            return self
        numbered = copy.copy(self)
        numbered._order, numbered._prepared = order, None
        return numbered

    def holding(self, columns: ArrayLike | Sequence[str]) -> HoldingClassifier:
        """The same with no noise on some columns (numbers, names, or a mask of an input's shape): categories, say.

        Certificates are then about changes of the others.
        """
        return HoldingClassifier(self, columns)

    def of(self, base: BaseClassifier) -> SmoothedClassifier:
        """The same plan, seed, execution and order of classes for another model."""
        if self.plan.search is not None:
            self.plan.search.check(base)
        other = copy.copy(self)
        other.base, other._input_shape, other._prepared = base, base.input_shape, None
        return other

    def on(self, execution: Execution) -> SmoothedClassifier:
        """The same, prepared as it is, with other workers."""
        other = copy.copy(self)
        other.execution = execution
        return other

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape; returns the plan as it will be used."""
        return replace(self.plan, numerics=self.prepared(input_shape).numerics).for_shape(tuple(input_shape))

    def prepared(self, input_shape: tuple[int, ...]) -> Prepared:
        """The model ready for inputs of this shape."""
        self.plan.check_shape(tuple(input_shape))
        if self._prepared is None or self._prepared.input_shape != tuple(input_shape):
            prepared = self.base.prepare(self.plan.numerics, tuple(input_shape), self.execution.main_device)
            self._prepared = replace(prepared, order=self._order)
        return self._prepared

    def settle_seed(self) -> int:
        """The plan's seed; where it has none, one from the operating system becomes it.

        Somebody who knows the seed before choosing an input can look for one that it flatters.
        """
        with _SETTLING:  # two threads that ask first must not draw two: an input would have two streams
            if self.plan.seed is None:
                self.plan = replace(self.plan, seed=secrets.randbits(63))
            return self.plan.known_seed

    def settle_numerics(self, settled: Numerics | None) -> None:
        """Take over what the plan leaves open of its numerics from a run that has settled it; None for no such run."""
        if settled is not None:
            numerics = self.plan.numerics.completed(settled)
            if numerics != self.plan.numerics:
                self.plan, self._prepared = replace(self.plan, numerics=numerics), None

    def settle_for(self, levels: int | None, largest: float) -> None:
        """Settle what the plan left open for a data set of numbers up to ``largest``: its grid and type, and a seed.

        The seed may be fixed, because the inputs were there before it.
        """
        plan = self.plan
        if plan.levels is None:
            plan = replace(plan, levels=levels)
        if plan.seed is None:
            plan = replace(plan, seed=0)
        if plan.numerics.dtype == AUTO_DTYPE:
            dtype = exact_type(plan.noise, plan.grid, largest)
            plan = replace(plan, numerics=replace(plan.numerics, dtype=dtype))
        if plan.numerics != self.plan.numerics:
            self._prepared = None
        self.plan = plan

    @property
    def classes(self) -> int:
        """Number of classes the model tells apart; known once it is prepared."""
        if self._prepared is None:
            raise InvalidValueError("the number of classes is known after prepare(input_shape)")
        return self._prepared.classes

    def certify(
        self,
        x: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certification | Certifications:
        """Certify one input, or each input of a batch: then a list comes back, which has columns as well.

        Inputs are arrays, tensors, tables, or a torch ``DataLoader`` (whose targets aren't looked at). ``progress``
        shows a bar.

        One input is told from a batch by ``input_shape`` where it is known (given, or read from the model);
        otherwise arrays of 1 or 3 dimensions are one input, of 2 or 4 a batch. ``index`` names the random
        stream (of the first input); by default it follows from the input's values, so equal inputs get equal
        answers and different ones independent noise. ``labels``, as the model calls its classes, are for plans that
        stop at wrong ones.
        """
        inputs, single = self.split(x)
        answers = self.certify_batch(inputs, index, labels, progress=progress)
        return answers[0] if single else answers

    def certify_batch(
        self,
        inputs: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certifications:
        """Certify every input of a batch, in order."""
        numbered = numbered_inputs(as_array(inputs), index)
        label_of = None if labels is None else _label_of([i for i, _ in numbered], labels, self.class_names)
        with naming_rows(numbered, index):
            answers = self.certify_each(numbered, labels=label_of)
            if progress:
                answers = with_progress(answers, len(numbered))
            found = {answer.index: answer for answer in answers}
        return Certifications(
            (replace(found[i], row=row) for row, (i, _) in enumerate(numbered)), self.class_names
        )

    def certify_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        on_votes: Callable[[int], None] | None = None,
        labels: Callable[[int], int] | None = None,
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order.

        ``on_votes`` hears of votes as they are counted, and of the network evaluations of a search. ``labels`` gives
        the label that belongs to an index, for rules that need it.
        """
        self.settle_seed()
        self._check_rules(labels is not None)
        self.plan.warn_if_hopeless()
        prepared = self._prepared_inputs(inputs)
        forecast = forecast_for(self.plan)
        jobs = (
            Job(i, x, plan.noise, self._certifying(i, x, plan, found, labels, forecast))
            for i, x, plan, found in self._with_sigma(prepared, on_votes)
        )
        for done in self._run(jobs, self.plan.confidence_bound.votes, on_votes):
            yield self._named(replace(done.answer, seconds=done.seconds))

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
            label = _label_of([index], [label], self.class_names)(index)
        plan = self.prepare(one.shape)
        assert self._prepared is not None
        states = certify_states(plan, self._prepared, self.execution, x=one, index=index, label=label)
        return (
            replace(state, certification=state.certification and self._named(state.certification))
            for state in states
        )

    def pilot_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        labels: Callable[[int], int],
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Piloted]]:
        """The votes that an allocation of a total is made from; none of them certifies anything."""
        self.settle_seed()
        jobs = (
            Job(i, x, self.plan.noise, piloting_procedure(self.plan, labels(i)))
            for i, x in self._prepared_inputs(inputs)
        )
        for done in self._run(jobs, self.plan.confidence_bound.votes, on_votes):
            yield done.job.index, done.answer

    def cast_each(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        votes: int,
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Tally]]:
        """So many votes on each input, of the stream of pilots: for planning, and none of them certifies anything."""
        self.settle_seed()
        jobs = (
            Job(i, x, self.plan.noise, one_draw(Draw(Phase.PILOT, votes)))
            for i, x in self._prepared_inputs(inputs)
        )
        for done in self._run(jobs, self.plan.confidence_bound.votes, on_votes):
            yield done.job.index, done.answer

    def certify_allocated(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        piloted: Mapping[int, Piloted],
        votes: Mapping[int, int],
        labels: Callable[[int], int],
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[Certification]:
        """Certify inputs with the numbers of fresh ``votes`` that an allocation gave them."""
        jobs = (
            Job(
                i,
                x,
                self.plan.noise,
                allocated_procedure(x, self.plan, piloted[i], labels(i), votes.get(i, 0)),
            )
            for i, x in self._prepared_inputs(inputs)
        )
        for done in self._run(jobs, self.plan.confidence_bound.votes, on_votes):
            yield self._named(replace(done.answer, seconds=done.seconds))

    def base_class(self, x: NDArray[Any]) -> int:
        """The base model's class for one input without noise."""
        self.prepare(x.shape)
        assert self._prepared is not None
        return self._prepared.label_of(x)

    def predict(
        self, x: ArrayLike, n: int = 1000, alpha: float | None = None, index: int | None = None
    ) -> Prediction | list[Prediction]:
        """PREDICT for one input or a batch (see :meth:`certify`) with n votes at level alpha (the plan's).

        It is about the same smoothed classifier as :meth:`certify`: where the plan's bound has soft votes, so has this.
        """
        inputs, single = self.split(x)
        numbered = numbered_inputs(inputs, index)
        with naming_rows(numbered, index):
            found = {answer.index: answer for answer in self.predict_each(numbered, n, alpha)}
        answers = [replace(found[i], row=row) for row, (i, _) in enumerate(numbered)]
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
        self.settle_seed()
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
            Job(
                i,
                x,
                self.plan.noise,
                predict_procedure(n, alpha, self.plan.for_shape(x.shape).sampler_error),
            )
            for i, x in self._prepared_inputs(inputs)
        )
        for done in self._run(jobs, self.plan.confidence_bound.votes, on_votes):
            yield self._named(replace(done.answer, seconds=done.seconds))

    def _certifying(
        self,
        index: int,
        x: NDArray[Any],
        plan: CertifyPlan,
        found: SearchResult | None,
        labels: Callable[[int], int] | None,
        forecast: RadiusForecast,
    ) -> Procedure[Certification]:
        assert self._prepared is not None  # looks lie on whole blocks, which the prepared model settles
        return stopping_procedure(
            x,
            replace(plan, numerics=self._prepared.numerics),
            found=found,
            label=None if labels is None else labels(index),
            forecast=forecast if found is None else None,
        )

    def _check_rules(self, labelled: bool) -> None:
        """Refuse rules that can't work here, before any vote is spent."""
        check_own_votes(self.plan)
        for each in self.plan.stops:
            if each.needs_label and not labelled:
                raise InvalidValueError(
                    f"the stopping rule {each.text!r} needs the label of every input: give labels, or leave it out"
                )

    def _with_sigma(
        self, inputs: Iterator[tuple[int, NDArray[Any]]], on_evaluations: Callable[[int], None] | None
    ) -> Iterator[tuple[int, NDArray[Any], CertifyPlan, SearchResult | None]]:
        """Each input with the plan at its own σ, found before any of its certifying votes is drawn."""
        plan = self.plan
        if plan.search is None:
            yield from ((index, x, plan, None) for index, x in inputs)
            return

        def problem() -> Problem:
            assert self._prepared is not None  # taking the first input prepared the model for its shape
            return Problem(
                base=self.base,
                prepared=self._prepared,
                noise=plan.noise,
                bound=plan.confidence_bound,
                n=plan.n,
                alpha=plan.alpha,
                seed=self.settle_seed(),
                execution=self.execution,
                grid=plan.grid,
            )

        for i, x, found in search_each(plan.search, problem, inputs, on_evaluations):
            own = replace(plan, noise=found.noise_like(plan.noise), search=None)
            yield i, x, own, found.drawn(own.noise)

    @property
    def class_order(self) -> tuple[int, ...] | None:
        """Class c is the model's class ``class_order[c]``; None where they are numbered alike."""
        return self._order

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """What the model calls its classes, in the order of their numbers here."""
        names, order = self.base.class_names, self._order
        return names if names is None or order is None else tuple(names[place] for place in order)

    def _named(self, answer: Answer) -> Answer:
        """The answer with what the model calls its class."""
        names, predicted = self.class_names, answer.predicted
        return answer if names is None or predicted == ABSTAIN else replace(answer, label=names[predicted])

    def _run(
        self, jobs: Iterator[Job[Any]], votes: VoteKind, on_votes: Callable[[int], None] | None
    ) -> Iterator[Finished[Any]]:
        first = next(jobs, None)
        if first is None:
            return
        assert self._prepared is not None  # taking the first job prepared the model for its shape
        engine = engine_for(self.plan, self._prepared, votes, self.execution)

        def all_jobs() -> Iterator[Job[Any]]:
            yield first
            yield from jobs

        yield from engine.run(all_jobs(), on_votes)

    def _prepared_inputs(
        self, inputs: Iterable[tuple[int, NDArray[Any]]]
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Prepare the model for the first input's shape; the engine refuses any other.

        Inputs are copied as they are taken: a caller may fill one array with the next input, or change it, while votes
        on the last are being cast, and the answer must be about the point that they were cast on.
        """
        for position, (index, given) in enumerate(inputs):
            x = np.array(given)
            if position == 0:
                self.prepare(x.shape)
            yield index, x

    def split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Inputs as a batch, and whether ``x`` was one of them alone."""
        array, shape = as_array(by_column(from_loader(x), self.base.feature_names)), self._input_shape
        if shape and array.shape != shape and array.shape[1:] != shape:
            rows = ", ".join(["rows", *map(str, shape)])
            raise InvalidValueError(
                f"{self.base.name} takes inputs of shape {shape}, got an array of shape {array.shape}: neither one "
                f"input nor a batch of shape ({rows})"
            )
        single = array.shape == shape if shape else array.ndim in (1, 3)
        return (array[np.newaxis], True) if single else (array, False)


def _label_of(indices: list[int], labels: ArrayLike, names: tuple[Any, ...] | None) -> Callable[[int], int]:
    """Numbers of labels by index, as many as inputs; labels go by name where the model's classes have names."""
    numbers = [number for _, number in class_numbers(labels, names)]
    if len(numbers) != len(indices) or None in numbers:
        known = "whole numbers" if names is None else f"of the classes {', '.join(map(repr, names[:8]))}"
        raise InvalidValueError(f"labels must be {len(indices)} {known}, got {labels!r}")
    found: dict[int, int] = {}
    for index, value in zip(indices, numbers):
        assert value is not None
        if found.setdefault(index, value) != value:
            raise InvalidValueError(
                f"two equal inputs have the labels {found[index]} and {value}: give one index="
            )
    return found.__getitem__
