"""SmoothedClassifier: PREDICT and CERTIFY for any model, for arrays and for (index, input) pairs."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import BOUNDS
from smoothcert.bounds.fixed import least_prediction_votes
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel
from smoothcert.engine.schedule import Draw, Finished, Job, Procedure, one_draw
from smoothcert.errors import (
    InvalidValueError,
    SmoothcertError,
    check_count,
    check_probability,
    warn_deprecated,
)
from smoothcert.models.adapt import adapt
from smoothcert.models.function import EstimatorClassifier
from smoothcert.models.numerics import Numerics
from smoothcert.models.outputs import OutputKind
from smoothcert.perturb.base import DEFAULT_NOISE, Isotropic, Perturbation, real_noise
from smoothcert.registry import suggesting
from smoothcert.runs.side_files import Piloted
from smoothcert.smoothing.answers import Certification, Certifications, Prediction, Predictions
from smoothcert.smoothing.inputs import (
    Labels,
    as_array,
    as_shape,
    by_column,
    from_loader,
    held_mask,
    is_loader,
    labels_by_index,
    naming_rows,
    noise_on_columns,
    numbered_inputs,
    warn_if_small,
)
from smoothcert.smoothing.plan import AUTO, CertifyPlan, TooFewVotesWarning
from smoothcert.smoothing.planned_model import (
    Numbered,
    PlannedModel,
    certify_states,
    check_streams,
    noisy_model,
    with_own_plans,
)
from smoothcert.smoothing.procedures import (
    CertifyState,
    allocated_procedure,
    check_own_votes,
    forecast_for,
    piloting_procedure,
    predict_procedure,
    predict_until_decided,
    stopping_procedure,
)
from smoothcert.smoothing.saving import Source
from smoothcert.smoothing.search.base import SigmaSearch
from smoothcert.smoothing.stopping.base import Stop
from smoothcert.tally import ABSTAIN, Phase, Tally

if TYPE_CHECKING:
    from smoothcert.smoothing.holding import HoldingClassifier


class UnmaskedModelWarning(UserWarning):
    """A model that may never have seen masks is asked about masked rows."""


T = TypeVar("T")
R = TypeVar("R")
Answer = TypeVar("Answer", Certification, Prediction)


def with_progress(answers: Iterator[T], total: int) -> Iterator[T]:
    """The same answers, counted by a bar as they pass."""
    from rich import progress
    from rich.console import Console

    elapsed, left = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    columns = progress.BarColumn(), progress.MofNCompleteColumn(), "elapsed", elapsed, "left", left
    with progress.Progress("certifying", *columns, console=Console(stderr=True)) as bar:
        yield from bar.track(answers, total=total)


Inputs = Iterable[tuple[int, NDArray[Any]]]
"""(index, input) pairs; an index names the input's random streams."""
OnVotes = Callable[[int], None]
"""Called with the number of votes just counted."""
PredictionOf = Callable[[CertifyPlan], Procedure[Prediction]]
"""The procedure of PREDICT for an input with this plan, which knows its dimension."""


class ArrayInterface(ABC):
    """One input or a batch of them in, one answer or as many out; a subclass says how votes are cast on pairs."""

    @property
    @abstractmethod
    def whole(self) -> ModelClassifier:
        """The classifier of whole inputs, which has the model, the plan and the engine."""

    def for_inputs(self, x: Any) -> tuple[ArrayInterface, Any]:
        """What votes on these inputs, and the inputs as it takes them."""
        return self, x

    @abstractmethod
    def _certified(
        self, inputs: Inputs, on_votes: OnVotes | None, labels: Labels | None
    ) -> Iterator[Finished[Certification]]:
        """CERTIFY for (index, input) pairs."""

    @abstractmethod
    def _predicted(
        self, inputs: Inputs, on_votes: OnVotes | None, procedure: PredictionOf
    ) -> Iterator[Finished[Prediction]]:
        """PREDICT for (index, input) pairs, by what the procedure makes of an input's plan."""

    def certify_each(
        self, inputs: Inputs, on_votes: OnVotes | None = None, labels: Labels | None = None
    ) -> Iterator[Certification]:
        """Certify (index, input) pairs; answers come as they are ready, not in order.

        ``on_votes`` hears of votes as they are counted, and of the network evaluations of a search. ``labels`` gives
        the label that belongs to an index, for rules that need it.
        """
        self.whole.settle_seed()
        self.whole.check_rules(labels is not None)
        self.whole.plan.warn_if_hopeless()
        yield from self.whole.told(self._certified(inputs, on_votes, labels))

    def predict_each(
        self,
        inputs: Inputs,
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
        until_decided: int | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs; answers come as they are ready, not in order."""
        procedure = self.whole.predict_procedure(n, alpha, until_decided)
        yield from self.whole.told(self._predicted(inputs, on_votes, procedure))

    def certify(
        self,
        x: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certifications:
        """Certify every input of a batch, in order.

        Inputs are arrays, tensors, tables, or a torch ``DataLoader`` (whose targets are not read). ``index`` names the
        random stream of the first input; by default each stream follows from the input's values, so that equal inputs
        get equal answers and different ones independent noise. ``labels``, as the model calls its classes, are for
        plans that stop at wrong ones. ``progress`` shows a bar.

        If the model fails midway, the exception's ``finished`` has the answers that were ready.
        """
        voting, x = self.for_inputs(x)
        inputs, single = self.whole.split(x)
        if single:
            warn_deprecated("certify(x) with one input", "certify_one(x), or certify(x[None])")
        answers = voting._certify_rows(inputs, index, labels, progress)
        return answers[0] if single else answers  # type: ignore[return-value]

    def certify_one(self, x: ArrayLike, index: int | None = None, label: Any = None) -> Certification:
        """Certify one input; see :meth:`certify`."""
        voting, x = self.for_inputs(x)
        labels = None if label is None else [label]
        return voting._certify_rows(self.whole.one(x), index, labels, False)[0]

    def certify_batch(
        self,
        inputs: ArrayLike,
        index: int | None = None,
        labels: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> Certifications:
        """The name that :meth:`certify` had while it also took single inputs."""
        warn_deprecated("certify_batch", "certify")
        return self._certify_rows(as_array(inputs), index, labels, progress)

    def _certify_rows(
        self, array: NDArray[Any], index: int | None, labels: ArrayLike | None, progress: bool
    ) -> Certifications:
        names = self.whole.class_names

        def certified(numbered: Inputs) -> Iterator[Certification]:
            label_of = None if labels is None else labels_by_index([i for i, _ in numbered], labels, names)
            answers = self.certify_each(numbered, labels=label_of)
            return with_progress(answers, len(array)) if progress else answers

        answers = Certifications(_by_row(array, index, certified), names)
        answers.source = self._source(array, by_values=index is None)
        if isinstance(noise := self.whole.plan.noise, Isotropic) and self.whole.voting is self:
            warn_if_small(noise.sigma, float(array.min()), float(array.max()))
        return answers

    def _source(self, inputs: NDArray[Any], *, by_values: bool) -> Source | None:  # noqa: ARG002
        """What the answers to these inputs rest on; None where it is more than a run of them can state."""
        return None

    def predict(
        self,
        x: ArrayLike,
        n: int = 1000,
        alpha: float | None = None,
        index: int | None = None,
        *,
        until_decided: int | None = None,
    ) -> Predictions:
        """PREDICT for every input of a batch (see :meth:`certify`) with n votes at level alpha (the plan's).

        The test is of one number of votes: asking again with more of them until it answers is wrong more often than
        alpha. ``until_decided`` is made for that: votes are cast until an anytime-valid test answers, at most so many,
        and the answer is wrong with probability at most alpha whenever it comes. ``n`` takes no part then.

        It is about the same smoothed classifier as :meth:`certify`: where the plan's bound has soft votes, so has this.
        """
        voting, x = self.for_inputs(x)
        inputs, single = self.whole.split(x)
        if single:
            warn_deprecated("predict(x) with one input", "predict_one(x), or predict(x[None])")
        answers = voting._predict_rows(inputs, index, n, alpha, None, until_decided)
        return answers[0] if single else answers  # type: ignore[return-value]

    def predict_one(
        self,
        x: ArrayLike,
        n: int = 1000,
        alpha: float | None = None,
        index: int | None = None,
        *,
        until_decided: int | None = None,
    ) -> Prediction:
        """PREDICT for one input; see :meth:`predict`."""
        voting, x = self.for_inputs(x)
        return voting._predict_rows(self.whole.one(x), index, n, alpha, None, until_decided)[0]

    def _predict_rows(self, array: NDArray[Any], index: int | None, *asked: Any) -> Predictions:
        answers = _by_row(array, index, lambda numbered: self.predict_each(numbered, *asked))
        return Predictions(answers, self.whole.class_names)


def _by_row(
    inputs: NDArray[Any], index: int | None, answers_to: Callable[[Inputs], Iterator[Answer]]
) -> list[Answer]:
    """The answers to the rows of a batch, in order."""
    numbered = numbered_inputs(inputs, index)
    answers: dict[int, Answer] = {}

    def finished() -> list[Answer]:
        rows = enumerate(number for number, _ in numbered)
        return [replace(answers[number], row=row) for row, number in rows if number in answers]

    with naming_rows(numbered, index):
        try:
            for answer in answers_to(numbered):
                answers[answer.index] = answer
        except SmoothcertError as error:
            if answers:
                error.finished = finished()
            raise
    return finished()


class ModelClassifier(PlannedModel, ArrayInterface):
    """A model and its plan as a classifier of arrays: smoothed with one σ, or with one that follows the input."""

    def __repr__(self) -> str:
        """The model's name and the plan."""
        return f"{type(self).__name__}({self.base.name}, {self.plan!r})"

    @property
    def whole(self) -> ModelClassifier:
        """Itself."""
        return self

    def holding(self, columns: ArrayLike | Sequence[str]) -> HoldingClassifier:
        """What ``hold=columns`` does, by its old name."""
        from smoothcert.smoothing.holding import HoldingClassifier

        warn_deprecated(".holding(columns)", "SmoothedClassifier(…, hold=columns)")
        return HoldingClassifier(self, columns)

    @property
    def voting(self) -> ModelClassifier | HoldingClassifier:
        """What casts the votes: itself, or the classifier that holds its columns."""
        return self

    def base_class(self, x: NDArray[Any]) -> int:
        """The base model's class for one input without noise."""
        return self.prepared(x.shape).label_of(x)

    def cast_each(
        self, inputs: Inputs, votes: int, on_votes: OnVotes | None = None
    ) -> Iterator[tuple[int, Tally]]:
        """So many votes on each input, of the stream of pilots: for planning, and none of them certifies anything."""
        self.settle_seed()
        for done in self._cast(inputs, lambda *_: one_draw(Draw(Phase.PILOT, votes)), on_votes):
            yield done.job.index, done.answer

    def predict_procedure(self, n: int, alpha: float | None, until_decided: int | None) -> PredictionOf:
        """What makes the procedure of PREDICT for a plan that knows its dimension; warns where it can only abstain."""
        if self.plan.search is not None:
            raise InvalidValueError("PREDICT is about one sigma for all inputs: leave the plan's search out")
        alpha = self._settle_prediction(n if until_decided is None else until_decided, alpha)
        least = least_prediction_votes(alpha)
        if until_decided is None and n < least:
            warnings.warn(
                f"PREDICT can only abstain: n = {n} votes can't succeed at alpha = {alpha}; the smallest n that "
                f"could is {least}",
                TooFewVotesWarning,
                stacklevel=3,
            )

        def procedure(plan: CertifyPlan) -> Procedure[Prediction]:
            if until_decided is not None:
                return predict_until_decided(until_decided, alpha, plan.sampler_error)
            return predict_procedure(n, alpha, plan.sampler_error)

        return procedure

    def _settle_prediction(self, n: int, alpha: float | None) -> float:
        """The level of a prediction by n votes, the plan's by default, once both are checked and there is a seed."""
        self.settle_seed()
        check_count("n", n)
        return check_probability("alpha", self.plan.alpha if alpha is None else alpha)

    def check_rules(self, labelled: bool) -> None:
        """Refuse rules that can't work here, before any vote is spent."""
        check_own_votes(self.plan)
        for each in self.plan.stops:
            if each.needs_label and not labelled:
                raise InvalidValueError(
                    f"the stopping rule {each.text!r} needs the label of every input: give labels, or leave it out"
                )

    def _cast(
        self, inputs: Inputs, procedure: Callable[[int, NDArray[Any]], Procedure[R]], on_votes: OnVotes | None
    ) -> Iterator[Finished[R]]:
        """A procedure for each input, at the plan's own noise."""

        def jobs(model: NoisyModel, given: Numbered) -> Iterator[Job[R]]:
            return (model.job(i, x, self.plan.noise, procedure(i, x)) for i, x in given)

        return self._run(inputs, jobs, on_votes)

    def told(self, finished: Iterator[Finished[Answer]]) -> Iterator[Answer]:
        """Answers with their time and what the model calls their class."""
        return (self._named(replace(done.answer, seconds=done.seconds)) for done in finished)

    def _named(self, answer: Answer) -> Answer:
        names, predicted = self.class_names, answer.predicted
        return answer if names is None or predicted == ABSTAIN else replace(answer, label=names[predicted])

    def split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Inputs as a batch, and whether ``x`` was one of them alone."""
        x = self.plan.noise.encoded(x)
        shape, loader = self._input_shape, is_loader(x)
        given = from_loader(x, shape) if loader else by_column(x, self.base.feature_names)
        array = as_array(given)
        if shape and array.shape[1:] != shape and (loader or array.shape != shape):
            rows = ", ".join(["rows", *map(str, shape)])
            raise InvalidValueError(
                f"{self.base.name} takes inputs of shape {shape}, got an array of shape {array.shape}: neither one "
                f"input nor a batch of shape ({rows})"
            )
        # Three axes are one picture, unless they are a list of arrays: that is a batch.
        listed = isinstance(x, list | tuple) and len(x) > 0 and hasattr(x[0], "shape")
        alone = (1,) if listed else (1, 3)
        single = not loader and (array.shape == shape if shape else array.ndim in alone)
        return (array[np.newaxis], True) if single else (array, False)

    def one(self, x: ArrayLike) -> NDArray[Any]:
        """One input as a batch of one."""
        array, shape = as_array(by_column(x, self.base.feature_names)), self._input_shape
        if array.shape == shape or not shape:
            return array[np.newaxis]
        if array.shape == (1, *shape):
            return array
        raise InvalidValueError(
            f"{self.base.name} takes inputs of shape {shape}, got one of shape {array.shape}; batches go to certify "
            "and predict"
        )


class SmoothedClassifier(ModelClassifier):
    """g(x) = the class the base model most often gives to x + noise, with PREDICT and CERTIFY.

    Noise is added in the units of the inputs you pass; normalisation belongs inside the model. Give ``sigma`` and any
    of the plan's other fields, or a ``plan``.

    Parameters
    ----------
    model
        A torch module, the path of an ``.onnx`` file, a fitted classifier by scikit-learn's conventions, or a function
        from a batch to labels, scores or probabilities.
    plan
        All fields of the statement at once, instead of those below.
    sigma
        Standard deviation of the noise, in the units of the inputs: a number; an array in the shape of an input; or
        one for each of some columns, ``{"age": 5, "income": 5000}``. Columns without one are held.
    noise
        ``gaussian`` (certifies ℓ2 balls) or ``uniform`` (ℓ1); or a noise with scales of its own, such as
        ``Hybrid.of(table)``, instead of a sigma.
    bound
        The confidence bound by name; ``auto`` takes top-two, or mixture-top-two where votes may end the voting.
    n0
        Votes that choose the class.
    n
        Fresh votes that bound its probability, at most.
    alpha
        Probability that a certificate is wrong.
    seed
        Names the random streams. None takes one from the operating system (0 for a data set): anyone who knows the
        seed can look for inputs that it flatters.
    stop
        Rules that end an input's voting early, or a budget: ``"decide:0.5"``, or several of them.
    search
        What chooses each input's own σ.
    hold
        Columns without noise, by name, number, or a mask in the shape of an input: categories, say. Certificates are
        about changes of the others.
    levels
        Inputs are multiples of 1/levels (255 for 8-bit pictures in [0, 1]): noise is drawn on that grid. None takes a
        finer grid and rounds inputs to it.
    dtype
        Type in which the model sees samples: short for ``numerics=Numerics(dtype=…)``.
    numerics
        Type, route and shape in which the model sees samples.
    outputs
        What the model returns: ``scores``, ``probabilities`` or ``labels``.
    classes
        How many classes there are, where a function returns labels, or one number a row (``classes=2``).
    output
        Which of several outputs of a module or an ONNX file votes.
    input_dtype
        For models that take whole numbers: ``uint8``.
    constants
        The inputs of an ONNX file that are not smoothed, by name.
    thread_safe
        Whether several threads may call the model at once; by default captured torch modules and ONNX files.
    retries
        How often a failed call of a function is repeated, after pauses that grow from half a second to a minute: for
        functions that ask a service. Errors of code and values (``TypeError``, ``ValueError``, …) are not repeated.
    input_shape
        The shape of one input, where the model does not say.
    execution
        Device, workers and batch: what changes speed and no answer.
    """

    @suggesting
    def __init__(
        self,
        model: Any,
        plan: CertifyPlan | None = None,
        *,
        sigma: float | ArrayLike | Mapping[str, float] | Mapping[int, float] | None = None,
        noise: str | Perturbation = DEFAULT_NOISE,
        bound: str = AUTO,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        seed: int | None = None,
        stop: str | Stop | Iterable[Stop | str] = (),
        search: SigmaSearch | None = None,
        hold: ArrayLike | Sequence[str] | None = None,
        levels: int | None = None,
        dtype: str | None = None,
        numerics: Numerics | None = None,
        outputs: OutputKind | None = None,
        classes: int | None = None,
        output: str | None = None,
        input_dtype: str | None = None,
        constants: Mapping[str, ArrayLike] | None = None,
        thread_safe: bool | None = None,
        retries: int | None = None,
        input_shape: int | Sequence[int] | None = None,
        execution: Execution | None = None,
    ) -> None:
        whole = isinstance(noise, Perturbation)
        if (plan is not None) + (sigma is not None) + whole != 1:
            raise InvalidValueError(
                "give either a plan, or sigma=, the standard deviation of the noise, or a noise that has its own"
            )
        if dtype is not None and numerics is not None:
            raise InvalidValueError(f"dtype={dtype!r} and numerics are mutually exclusive")
        if dtype is not None:
            numerics = Numerics(dtype=dtype)
        stated = {
            **{"bound": bound, "n0": n0, "n": n, "alpha": alpha, "seed": seed, "search": search},
            **{"levels": levels, "numerics": numerics or Numerics(), "stop": stop},
        }
        if plan is not None:
            usual = {each.name: each.default for each in fields(CertifyPlan)} | {"numerics": Numerics()}
            if given := [name for name, value in stated.items() if value != usual[name]]:
                raise InvalidValueError(f"{', '.join(given)} belong in the plan when a plan is given")
            bound = plan.bound
        base = adapt(
            model,
            "hard" if bound == AUTO else BOUNDS[bound].votes,
            outputs,
            classes,
            output=output,
            thread_safe=thread_safe,
            input_dtype=input_dtype,
            constants=constants,
            retries=retries,
        )
        if isinstance(noise, Perturbation):
            plan = CertifyPlan(noise, **stated)  # type: ignore[arg-type]
        elif plan is None:
            drawn, hold = noise_on_columns(
                noise, sigma, hold, as_shape(input_shape) or base.input_shape, base.feature_names
            )
            plan = CertifyPlan(drawn, **stated)  # type: ignore[arg-type]
        if plan.sigma_levels is not None:
            raise InvalidValueError("a plan with sigma levels is for a LevelledClassifier")
        if hold is not None:
            real_noise(plan.noise, "hold, columns without noise (--hold),")
        self._hold = None if hold is None else np.array(hold)  # the caller's may change
        decoder = plan.noise.decoder()
        if isinstance(base, EstimatorClassifier):
            if (doubt := plan.noise.doubt(base.trained_for)) is not None:
                warnings.warn(doubt, UnmaskedModelWarning, stacklevel=3)
            if decoder is not None and base.feature_names is not None:
                base = base.with_columns(decoder)
        super().__init__(base, plan, execution, input_shape)
        if self._hold is not None and self._input_shape:
            held_mask(self._hold, self._input_shape, base.feature_names)  # an unknown column is an error now

    def _source(self, inputs: NDArray[Any], *, by_values: bool) -> Source | None:
        """Plan, model and inputs."""
        if self._hold is not None:
            return self.voting._source(inputs, by_values=by_values)
        plan = self.prepare(inputs.shape[1:])
        return Source(plan, self.base, inputs, self.execution.device_kind, self._order, None, by_values)

    @property
    def voting(self) -> SmoothedClassifier | HoldingClassifier:
        """What casts the votes: itself, or the classifier that holds its columns."""
        from smoothcert.smoothing.holding import HoldingClassifier

        return self if self._hold is None else HoldingClassifier(self, self._hold)

    def for_inputs(self, x: Any) -> tuple[ArrayInterface, Any]:
        """What votes on these inputs, and the inputs as it takes them."""
        return (self, x) if self._hold is None else self.voting.for_inputs(x)

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape; returns the plan as it will be used."""
        return super().prepare(input_shape) if self._hold is None else self.voting.prepare(input_shape)

    def base_class(self, x: NDArray[Any]) -> int:
        """The base model's class for one input without noise."""
        return super().base_class(x) if self._hold is None else self.voting.base_class(x)

    def _certified(
        self, inputs: Inputs, on_votes: OnVotes | None, labels: Labels | None
    ) -> Iterator[Finished[Certification]]:
        if self._hold is not None:
            return self.voting._certified(inputs, on_votes, labels)
        forecast = forecast_for(self.plan)

        def jobs(model: NoisyModel, given: Numbered) -> Iterator[Job[Certification]]:
            prepared = model.passes.prepared
            own = with_own_plans(self.plan, self.base, prepared, self.execution, given, on_votes)
            for i, x, plan, found in own:
                procedure = stopping_procedure(
                    x,
                    replace(plan, numerics=prepared.numerics),  # checkpoints lie on whole blocks
                    found=found,
                    label=None if labels is None else labels(i),
                    forecast=forecast if found is None else None,
                )
                yield model.job(i, x, plan.noise, procedure)

        return self._run(inputs, jobs, on_votes)

    def _predicted(
        self, inputs: Inputs, on_votes: OnVotes | None, procedure: PredictionOf
    ) -> Iterator[Finished[Prediction]]:
        if self._hold is not None:
            return self.voting._predicted(inputs, on_votes, procedure)
        return self._cast(inputs, lambda _, x: procedure(self.plan.for_shape(x.shape)), on_votes)

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
        if self._hold is not None:
            raise InvalidValueError("certify_stream is for whole inputs: leave hold out, or use certify_one")
        self.check_rules(label is not None)
        inputs, single = self.split(x)
        if not single:
            raise InvalidValueError(f"certify_stream takes one input, got shape {as_array(x).shape}")
        # A copy: the caller's may change between two states.
        ((index, point),) = numbered_inputs(inputs.copy(), index)
        if label is not None:
            label = labels_by_index([index], [label], self.class_names)(index)
        model = noisy_model(self.plan, self.prepared(point.shape), self.engine)
        states = certify_states(self.prepare(point.shape), model, point, index, label)
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

        yield from self.told(self._cast(inputs, procedure, on_votes))
