"""A model and the plan it votes by: what is settled before the first vote, and what stays the same for another."""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.noise import Noise, exact_type
from smoothcert.sampling import BaseClassifier, Execution, Finished, Job, Numerics, Prepared
from smoothcert.sampling.checking import RowCheck
from smoothcert.sampling.numerics import AUTO_DTYPE
from smoothcert.smoothing.inputs import as_numpy
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.voting import engine_for

R = TypeVar("R")

Numbered = Iterator[tuple[int, NDArray[Any]]]

_SETTLING = threading.Lock()


class PlannedModel:
    """A model, its plan, and where its votes are cast; the model is prepared for the first shape it is shown."""

    def __init__(
        self,
        base: BaseClassifier,
        plan: CertifyPlan,
        execution: Execution | None,
        input_shape: tuple[int, ...] | None,
    ) -> None:
        if plan.search is not None:
            plan.search.check(base)
        self.base = base
        self.plan = plan
        self.execution = execution or Execution()
        self._input_shape = input_shape or base.input_shape
        self._prepared: Prepared | None = None
        self._order: tuple[int, ...] | None = None
        self._row_check: RowCheck | None = None
        # Drawn before there are copies: each with a seed of its own would be a choice among certificates of one input.
        self._drawn_seed = secrets.randbits(63)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model made ready to vote, which belongs to this process.

        The seed goes along, used or not: whoever can read a pickle knows it.
        """
        return vars(self) | {"_prepared": None}

    def __copy__(self) -> Self:
        """What was made ready is shared by the copies of one process."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

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
        other.base, other._input_shape, other._prepared = base, base.input_shape, None
        return other

    def on(self, execution: Execution) -> Self:
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
        prepared = self._prepared  # another thread may prepare it for another shape meanwhile
        if prepared is None or prepared.input_shape != tuple(input_shape):
            self._prepared = prepared = self._made_ready(self.base, tuple(input_shape))
        return prepared

    def _made_ready(self, base: BaseClassifier, input_shape: tuple[int, ...]) -> Prepared:
        made = base.prepare(self.plan.numerics, input_shape, self.execution.main_device)
        return replace(made, order=self._order, rows=self._row_check or made.rows)

    def voters(self, input_shape: tuple[int, ...]) -> list[tuple[Prepared, Noise]]:
        """The models that vote on inputs of this shape, and the noise that each sees."""
        return [(self.prepared(input_shape), self.plan.noise)]

    def sharing(self, rows: RowCheck) -> Self:
        """The same, its model being looked at together with others that differ in what is held."""
        other = copy.copy(self)
        other._row_check, other._prepared = rows, None
        return other

    def settle_seed(self) -> int:
        """The plan's seed; where it has none, one from the operating system becomes it.

        All copies of a classifier have the same, in other processes too. Knowing the seed before choosing an input is
        enough to look for one that it flatters.
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
            needed = [exact_type(noise, plan.grid, largest) for noise in self.noises()]
            dtype = "float64" if fine else max(needed)
            plan = replace(plan, numerics=replace(plan.numerics, dtype=dtype))
        if plan.numerics != self.plan.numerics:
            self._prepared = None
        self.plan = plan

    def noises(self) -> list[Noise]:
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
        jobs: Callable[[Prepared, Numbered], Iterator[Job[R]]],
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
        prepared = self.prepared(first[1].shape)
        engine = engine_for(self.plan, prepared, self.execution)
        yield from engine.run(jobs(prepared, chain([first], waiting)), on_votes)
