"""Noise on some coordinates of an input and none on the others: categories, and columns that can't be changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES
from smoothcert.registry import unknown_name
from smoothcert.sampling.checking import RowCheck
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.models.function import EstimatorClassifier
from smoothcert.sampling.models.held import HeldClassifier, exact_in
from smoothcert.sampling.numerics import AUTO_DTYPE, Numerics
from smoothcert.sampling.passes import checked_input
from smoothcert.sampling.rows import measured
from smoothcert.smoothing.answers import Certification, HeldPart, Prediction
from smoothcert.smoothing.array_interface import ArrayInterface, Inputs, Labels, OnVotes
from smoothcert.smoothing.held_tables import OwnValues, held_table
from smoothcert.smoothing.inputs import as_numpy, by_column

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.smoothing.plan import CertifyPlan


class HoldingClassifier(ArrayInterface):
    """g(u, v) = the class the model most often gives to (u + noise, v), where v are the coordinates that are held.

    Each answer is about one v: with probability at least 1−α, g is the same at every (u′, v) with u′ in the region,
    which has the coordinates that aren't held, in their order. Of another v it says nothing.

    Of a pandas table, held columns may hold anything: the model gets texts, categories and whole numbers as they are.
    Other values that are held reach it as they are, too: in float64 where float32 would round one, unless the plan
    states a type, which then refuses it.
    """

    def __init__(self, classifier: SmoothedClassifier, held: ArrayLike | Sequence[str]) -> None:
        if classifier.plan.noise.name not in NOISES:
            raise InvalidValueError(
                "the noise has a sigma for each coordinate: give noise of one sigma, or no columns to hold"
            )
        self.classifier = classifier
        self._held = np.array(held)  # the caller's may change
        self._own: OwnValues = {}
        self._rows = RowCheck()

    def __repr__(self) -> str:
        """The classifier, and what is held as it was given."""
        return f"{self.classifier!r}.holding({shorten(str(self._held), 60, placeholder=' …')})"

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """What the model calls its classes, in the order of their numbers here."""
        return self.classifier.class_names

    def split(self, x: ArrayLike) -> tuple[NDArray[Any], bool]:
        """Inputs as a batch, and whether ``x`` was one of them alone."""
        return self.classifier.split(x)

    def for_inputs(self, x: Any) -> tuple[HoldingClassifier, Any]:
        """The classifier that knows what numbers in held columns of this table stand for, and the table as numbers."""
        base = self.classifier.base
        if base.feature_names is None or not isinstance(base, EstimatorClassifier):
            return self, x
        names = base.feature_names
        table = held_table(by_column(x, names), names, self.mask((len(names),)))
        if table is None:
            return self, x
        voting = copy.copy(self)
        numbers, voting._own = table
        return voting, numbers[0] if getattr(x, "ndim", None) == 1 else numbers

    def mask(self, input_shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which coordinates of inputs of this shape are held."""
        return held_mask(self._held, input_shape, self.classifier.base.feature_names)

    def prepare(self, input_shape: tuple[int, ...]) -> CertifyPlan:
        """The plan as it will be used: the noise has the dimension of what isn't held."""
        free = int((~self.mask(input_shape)).sum())
        numerics = self.classifier.prepare(input_shape).numerics
        return replace(self.classifier.plan, numerics=numerics).for_shape((free,))

    def certify_each(
        self, inputs: Inputs, on_votes: OnVotes | None = None, labels: Labels | None = None
    ) -> Iterator[Certification]:
        """CERTIFY for (index, input) pairs, one after the other.

        The random stream belongs to the whole input: two that differ in what is held have independent votes.
        """
        self.classifier.settle_seed()
        for number, x in inputs:
            one, free, part = self.free_part(number, as_numpy(x))
            for answer in one.certify_each([(number, free)], on_votes, labels):
                yield replace(answer, held=part)

    def predict_each(
        self,
        inputs: Inputs,
        n: int = 1000,
        alpha: float | None = None,
        on_votes: OnVotes | None = None,
        until_decided: int | None = None,
    ) -> Iterator[Prediction]:
        """PREDICT for (index, input) pairs, one after the other."""
        self.classifier.settle_seed()
        for number, x in inputs:
            one, free, _ = self.free_part(number, as_numpy(x))
            yield from one.predict_each([(number, free)], n, alpha, on_votes, until_decided)

    def base_class(self, x: NDArray[Any]) -> int:
        """The model's class for one input without noise."""
        one, free, _ = self.free_part(0, as_numpy(x))
        return one.base_class(free)

    def free_part(self, number: int, x: NDArray[Any]) -> tuple[SmoothedClassifier, NDArray[Any], HeldPart]:
        """The classifier of the coordinates that aren't held, with the others at this input's values; and those."""
        mask = self.mask(x.shape)
        checked = checked_input(number, x, mask.shape)
        values, base = np.array(checked[mask]), self.classifier.base
        told = given = values
        if self._own and isinstance(base, EstimatorClassifier) and base.feature_names is not None:
            names = [name for name, held in zip(base.feature_names, mask) if held]
            own = {
                name: self._own[name, v] for name, v in zip(names, values.tolist()) if (name, v) in self._own
            }
            base = base.with_columns(own)
            told = np.empty(len(names), object)
            for place, (name, v) in enumerate(zip(names, values)):  # one by one: a value may be an array
                told[place] = own[name][0] if name in own else v
            # What a number stands for is in the model's columns, and the number itself reaches nobody.
            given = np.where([name in own for name in names], 0.0, values)
        told.setflags(write=False)
        smoothed = self.classifier.of(HeldClassifier(base, mask, given)).sharing(self._rows)
        if smoothed.plan.numerics.dtype == AUTO_DTYPE and not exact_in(given, np.float32).all():
            smoothed.settle_numerics(Numerics("float64"))
        if measured(smoothed.execution.main_device):  # once, and not for every input
            smoothed.settle_numerics(self.classifier.prepare(mask.shape).numerics)
        # Workers elsewhere would have to be started for every input.
        smoothed.execution = Execution(smoothed.execution.device, smoothed.execution.workers)
        return smoothed, checked[~mask], HeldPart(mask, told)


def held_finely(dataset: Dataset, held: NDArray[np.bool_]) -> bool:
    """Whether float32 would round a value that is held, of any input: shards of one run have one type."""
    if dataset.input(0).dtype == np.float32:
        return False
    return not all(exact_in(x[held], np.float32).all() for _, x in dataset.each(range(len(dataset))))


def held_mask(
    held: ArrayLike | Sequence[str], shape: tuple[int, ...], columns: Sequence[str] | None
) -> NDArray[np.bool_]:
    """Where an input of this shape is held: from a mask of the shape, places, or names among its ``columns``."""
    given = np.asarray(held)
    if given.dtype == bool:
        if given.shape != shape:
            raise InvalidValueError(f"a mask of shape {given.shape} doesn't fit inputs of shape {shape}")
        mask = given.copy()
    else:
        mask = np.zeros(shape, dtype=bool)
        if len(shape) != 1:
            raise InvalidValueError(
                f"inputs of shape {shape} have no columns: say what is held by a mask of that shape"
            )
        for one in given.reshape(-1).tolist():
            place = _place(one, shape[0], columns)
            if mask[place]:
                raise InvalidValueError(
                    f"column {one!r} is held twice: name columns once, or give a mask of True and False"
                )
            mask[place] = True
    if not mask.any() or mask.all():
        raise InvalidValueError(
            f"some coordinates must be held and some not, got {int(mask.sum())} of {mask.size} held"
        )
    mask.setflags(write=False)
    return mask


def _place(column: Any, width: int, columns: Sequence[str] | None) -> int:
    if isinstance(column, str):
        if columns is None:
            raise InvalidValueError(
                f"the model doesn't name its columns, so that none is called {column!r}: say by number what is held, "
                f"from 0 to {width - 1}"
            )
        names = list(columns)
        if column not in names:
            raise unknown_name("column of the model", column, names)
        return names.index(column)
    if not isinstance(column, int) or not 0 <= column < width:
        raise InvalidValueError(f"columns to hold are numbers from 0 to {width - 1}, got {column!r}")
    return column
