"""A model and the plan it votes by: what is settled before the first vote, and what stays the same for another."""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import NoisyModel, Voter
from smoothcert.engine.schedule import Finished, Job, one_draw
from smoothcert.errors import InvalidValueError
from smoothcert.models.base import BaseClassifier, Held, Prepared
from smoothcert.models.numerics import AUTO_DTYPE, Numerics
from smoothcert.perturb.base import Perturbation, real_noise
from smoothcert.runs.side_files import SearchResult
from smoothcert.smoothing.inputs import as_numpy, as_shape
from smoothcert.smoothing.plan import ANYTIME_BOUND, CertifyPlan
from smoothcert.smoothing.procedures import CertifyState, stopping_procedure
from smoothcert.smoothing.search.base import SearchProblem, search_each
from smoothcert.tally import Phase


def noisy_model(plan: CertifyPlan, prepared: Prepared, engine: Engine) -> NoisyModel:
    """A model with the plan's streams and grid; refuses a plan whose votes can't be cast any more."""
    if not plan.on_grid:
        raise InvalidValueError(
            f"the plan is of stream version {plan.stream}, which drew noise in floating point: such votes aren't cast "
            "any more. Certify into a new directory"
        )
    return NoisyModel(engine, prepared, plan.confidence_bound.votes, plan.known_seed, plan.grid)


def with_own_plans(
    plan: CertifyPlan,
    base: BaseClassifier,
    prepared: Prepared,
    execution: Execution,
    inputs: Iterator[tuple[int, NDArray[Any]]],
    on_evaluations: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, NDArray[Any], CertifyPlan, SearchResult | None]]:
    """Each input with the plan at its own σ, found before any of its certifying votes is drawn."""
    if plan.search is None:
        yield from ((index, x, plan, None) for index, x in inputs)
        return
    noise = real_noise(plan.noise, "a sigma search")
    votes = plan.confidence_bound, plan.n, plan.alpha, plan.known_seed
    problem = SearchProblem(base, prepared, noise, *votes, execution, plan.grid)
    for index, x, found in search_each(plan.search, problem, inputs, on_evaluations):
        own = replace(plan, noise=found.noise_like(noise), search=None)
        yield index, x, own, found.drawn(real_noise(own.noise, "a sigma search"))


R = TypeVar("R")

Numbered = Iterator[tuple[int, NDArray[Any]]]

_SETTLING = threading.Lock()


class PlannedModel:
    """A model, its plan, and where its votes are cast; the model is prepared for the first shape it is shown.

    Its workers are started with the first vote and kept for the next, until :meth:`close`, the end of a ``with`` block,
    or until nothing refers to the classifier any more.
    """

    def __init__(
        self,
        base: BaseClassifier,
        plan: CertifyPlan,
        execution: Execution | None,
        input_shape: int | Sequence[int] | None,
    ) -> None:
        if plan.search is not None:
            plan.search.check(base)
        self.base = base
        self.plan = plan
        self.execution = execution or Execution()
        self._input_shape = as_shape(input_shape) or base.input_shape
        self._prepared: Prepared | None = None
        self._engine: Engine | None = None
        self._order: tuple[int, ...] | None = None
        # Drawn before there are copies: each with a seed of its own would be a choice among certificates of one input.
        self._drawn_seed = secrets.randbits(63)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model made ready to vote, which belongs to this process.

        The seed goes along, used or not: readers of the pickle know it.
        """
        return vars(self) | {"_prepared": None, "_engine": None}

    def __copy__(self) -> Self:
        """What was made ready is shared by the copies of one process."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next vote starts others."""
        if self._engine is not None:
            self._engine.close()

    @property
    def engine(self) -> Engine:
        """What casts the votes; the same for as long as the execution is."""
        with _SETTLING:
            if self._engine is None or self._engine.execution != self.execution:
                self._engine = Engine(self.execution)
            return self._engine

    def in_order(self, order: tuple[int, ...] | None) -> Self:
        """The same classifier with classes numbered otherwise: class c is the model's class ``order[c]``."""
        if order is None:
            return self
        numbered = copy.copy(self)
        numbered._order, numbered._prepared = order, None
        return numbered

    def of(self, base: BaseClassifier) -> Self:
        """The same plan, seed, execution and order of classes for another model."""
        if self.plan.search is not None:
            self.plan.search.check(base)
        other = copy.copy(self)
        other.base, other._input_shape = base, base.input_shape
        other._prepared, other._engine = None, None  # which end with it
        return other

    def on(self, execution: Execution) -> Self:
        """The same, prepared as it is, with other workers."""
        other = copy.copy(self)
        other.execution = execution
        return other

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """Settle what the plan left open for inputs of this shape; returns the plan as it will be used."""
        return replace(self.plan, numerics=self.prepared(input_shape).numerics).for_shape(tuple(input_shape))

    def prepared(
        self, input_shape: tuple[int, ...], held: Held | None = None, free: int | None = None
    ) -> Prepared:
        """The model ready for inputs of this shape, of which ``free`` coordinates have noise, or all.

        ``held``: where they have none, and an input.
        """
        self.base.warn_if_changed()
        if held is not None:
            free = int((~held[0]).sum())
        self.plan.check_shape(tuple(input_shape) if free is None else (free,))
        prepared = self._prepared  # another thread may prepare it for another shape meanwhile
        if prepared is None or prepared.input_shape != tuple(input_shape):
            self._prepared = prepared = self._made_ready(self.base, tuple(input_shape), held)
        return prepared

    def _made_ready(
        self, base: BaseClassifier, input_shape: tuple[int, ...], held: Held | None = None
    ) -> Prepared:
        device = self.execution.main_device
        if self.execution.driver_lacks_device:
            from smoothcert.engine.backends.ray import OnWorkers

            base, device = OnWorkers(base, self.execution), "cpu"
        made = base.prepare(self.plan.numerics, input_shape, device, held)
        return replace(made, order=self._order)

    def voter(self, index: int, x: NDArray[Any], noise: Perturbation | None = None) -> Voter:
        """The voter on one input, at the plan's noise or at another."""
        model = noisy_model(self.plan, self.prepared(x.shape), self.engine)
        return model.voter(index, x, noise or self.plan.noise)

    def voters(self, input_shape: tuple[int, ...]) -> list[tuple[Prepared, Perturbation]]:
        """The models that vote on inputs of this shape, and the noise that each sees."""
        return [(self.prepared(input_shape), self.plan.noise)]

    def settle_seed(self) -> int:
        """The plan's seed; where it has none, one from the operating system becomes it.

        All copies of a classifier have the same, in other processes as well. Knowing the seed before choosing an
        input is enough to look for one that it flatters.
        """
        with _SETTLING:  # or a thread might put back a plan that another has settled further
            if self.plan.seed is None:
                self.plan = replace(self.plan, seed=self._drawn_seed)
            return self.plan.known_seed

    def settle_numerics(self, settled: Numerics | None) -> None:
        """Take over what the plan leaves open of its numerics from a run that has settled it; None for no such run."""
        if settled is not None:
            numerics = self.plan.numerics.completed(settled)
            if numerics != self.plan.numerics:
                self.plan, self._prepared = replace(self.plan, numerics=numerics), None

    def settle_for(self, levels: int | None, largest: float, *, fine: bool = False) -> None:
        """Settle what the plan left open for a data set of numbers up to ``largest``: its grid and type, and a seed.

        ``fine``: the type has to be float64. The seed may be fixed, because the inputs were there before it.
        """
        plan = self.plan
        if plan.levels is None:
            plan = replace(plan, levels=levels)
        if plan.seed is None:
            plan = replace(plan, seed=0)
        if plan.numerics.dtype == AUTO_DTYPE:
            # Float64 where any of them needs it, which comes later in the alphabet.
            needed = [noise.exact_type(plan.grid, largest) for noise in self.noises()]
            dtype = "float64" if fine else max(needed)
            plan = replace(plan, numerics=replace(plan.numerics, dtype=dtype))
        if plan.numerics != self.plan.numerics:
            self._prepared = None
        self.plan = plan

    def noises(self) -> list[Perturbation]:
        """Everything that is added to inputs."""
        return [self.plan.noise]

    def fingerprint(self, input_shape: tuple[int, ...]) -> str:
        """A hash that changes when the model's function changes."""
        return self.base.fingerprint(input_shape)

    @property
    def classes(self) -> int:
        """Number of classes the model tells apart; known once it is prepared."""
        if self._prepared is None:
            raise InvalidValueError("the number of classes is known after prepare(input_shape)")
        return self._prepared.classes

    @property
    def class_order(self) -> tuple[int, ...] | None:
        """Class c is the model's class ``class_order[c]``; None where they are numbered alike."""
        return self._order

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """What the model calls its classes, in the order of their numbers here."""
        names, order = self.base.class_names, self._order
        return names if names is None or order is None else tuple(names[place] for place in order)

    def _run(
        self,
        inputs: Iterable[tuple[int, NDArray[Any]]],
        jobs: Callable[[NoisyModel, Numbered], Iterator[Job[R]]],
        on_votes: Callable[[int], None] | None = None,
    ) -> Iterator[Finished[R]]:
        """The jobs that ``jobs`` makes of these inputs, done as they are ready, not in order.

        The model is prepared for the first input's shape; the engine refuses any other. Inputs are copied as they are
        taken: a caller may fill one array with the next, or change it, while votes on the last are being cast, and the
        answer must be about the point that they were cast on.
        """
        waiting = ((index, np.array(as_numpy(x))) for index, x in inputs)
        first = next(waiting, None)
        if first is None:
            return
        model = noisy_model(self.plan, self.prepared(first[1].shape), self.engine)
        yield from model.run(jobs(model, chain([first], waiting)), on_votes)


def certify_states(
    plan: CertifyPlan, model: NoisyModel, x: NDArray[Any], index: int, label: int | None = None
) -> Iterator[CertifyState]:
    """A state at every checkpoint; the last one has the certification, the same that CERTIFY would give."""
    seen: list[CertifyState] = []
    procedure = stopping_procedure(x, plan, label=label, watch=seen.append)
    voter = model.voter(index, x, plan.noise)
    drawn: dict[Phase, int] = {}
    draw, seconds = next(procedure), 0.0
    while True:
        (done,) = model.run([Job((voter,), one_draw(draw), dict(drawn))])
        drawn[draw.phase] = drawn.get(draw.phase, 0) + draw.votes
        seconds += done.seconds
        try:
            draw = procedure.send(done.answer)
        except StopIteration as stop:
            answer = replace(stop.value, seconds=seconds)
            yield CertifyState(answer.estimation.n, answer.candidate, answer.radius, answer.bounds, answer)
            return
        if seen:
            yield seen.pop()


def check_streams(plan: CertifyPlan) -> None:
    """Refuse a plan whose bound doesn't hold at every n."""
    if not plan.confidence_bound.anytime:
        raise InvalidValueError(
            f"certify_stream shows votes as they come, and the {plan.bound} bound holds for a number of votes fixed "
            f"in advance only: give the plan bound={ANYTIME_BOUND!r}"
        )
    if plan.search is not None:
        raise InvalidValueError("certify_stream is about the plan's own noise: leave the sigma search out")
    if plan.budget.pilot_votes:
        raise InvalidValueError(f"certify_stream looks at votes as they come: leave {plan.budget.text} out")
