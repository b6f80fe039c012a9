"""Noise on some coordinates of an input and none on the others: categories, and columns that can't be changed.

Of tables, held columns may be texts, categories or whole numbers: the model gets those as they are.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.engine.passes import Voter, checked_input, exact_in
from smoothcert.engine.schedule import Finished, Job, Procedure
from smoothcert.errors import InvalidValueError
from smoothcert.models.function import EstimatorClassifier
from smoothcert.models.numerics import AUTO_DTYPE, Numerics
from smoothcert.perturb.base import real_noise
from smoothcert.smoothing.answers import Certification, HeldPart, Prediction
from smoothcert.smoothing.classifier import (
    ArrayInterface,
    Inputs,
    ModelClassifier,
    OnVotes,
    PredictionOf,
    SmoothedClassifier,
)
from smoothcert.smoothing.inputs import Labels, as_numpy, by_column, held_mask
from smoothcert.smoothing.planned_model import noisy_model
from smoothcert.smoothing.procedures import forecast_for, stopping_procedure
from smoothcert.smoothing.saving import Source

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.smoothing.plan import CertifyPlan

_NAMING_BITS = 52  # exact in float64


@dataclass(frozen=True)
class HeldColumn:
    """The values of a held column, an array of pandas' that keeps their type, and the place of each by its number."""

    values: Any
    places: Mapping[float, int]


HeldColumns = Mapping[str, HeldColumn]


def held_table(
    x: Any, names: Sequence[str], held: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], HeldColumns] | None:
    """A pandas table, its columns in the order of ``names``, of which some are held; None of anything else.

    As numbers, in which a number stands for each text, and what the model gets in their stead. Floats are numbers like
    any other; what else is held goes to the model in its own type. Two values never have one number: they are refused.
    """
    if getattr(x, "ndim", None) == 1 and hasattr(x, "to_frame"):  # a row, which calls its columns an index
        x = x.to_frame().T.infer_objects()
    if not hasattr(x, "iloc") or list(getattr(x, "columns", ())) != list(names):
        return None
    kept = [name for name, hold in zip(names, held) if hold and getattr(x[name].dtype, "kind", "O") != "f"]
    if not kept:
        return None
    text = [name for name, hold in zip(names, held) if not hold and not _holds_numbers(x[name])]
    if text:
        raise InvalidValueError(
            f"columns that hold no numbers, and aren't held: {', '.join(map(repr, text))}. Noise is added to numbers: "
            "hold them as well, or encode them first"
        )
    numbers = {name: _numbers(x[name], kept=name in kept) for name in names}
    columns = {}
    for name in kept:
        rows = _first_rows(x[name], numbers[name])
        places = {number: place for place, number in enumerate(rows)}
        columns[name] = HeldColumn(x[name].array.take(list(rows.values())), places)
    return np.column_stack(list(numbers.values())), columns


def _first_rows(column: Any, numbers: NDArray[np.float64]) -> dict[float, int]:
    """The first row of each number; refused where a later one has another value, or doesn't say whether it has."""
    values, rows = column.tolist(), dict[float, int]()
    for row, number in enumerate(numbers.tolist()):
        value, known = values[row], values[rows.setdefault(number, row)]
        if not (value is known or value == known or (value != value and known != known)):
            raise InvalidValueError(
                f"column {column.name!r} holds values of {type(value).__name__} in rows {rows[number]} and {row} that "
                "can't be told apart by what they print: certify such rows one at a time"
            )
    return rows


def _holds_numbers(column: Any) -> bool:
    return getattr(column.dtype, "kind", "O") in "biuf"


def _numbers(column: Any, *, kept: bool) -> NDArray[np.float64]:
    """A column as float64; what that doesn't have gets a number that stands for it, if its own value is ``kept``."""
    if not _holds_numbers(column):
        values = column.tolist()
        for row, value in enumerate(values):
            is_array = hasattr(value, "__array__") and not isinstance(value, np.generic)
            if is_array or isinstance(value, list | tuple | dict | set):
                raise InvalidValueError(
                    f"column {column.name!r} holds a {type(value).__name__} in row {row}: hold texts, numbers, truths "
                    "or dates, and give arrays columns of their own"
                )
        return np.array([_number_naming(value) for value in values], dtype=np.float64)
    try:
        found = np.array(column, dtype=np.float64)
    except (TypeError, ValueError) as error:  # missing values of pandas' own kind
        raise InvalidValueError(
            f"column {column.name!r} isn't numeric: {str(error).splitlines()[0]}"
        ) from None
    for row in np.flatnonzero(np.abs(found) >= 1 << 53).tolist():
        value = column.iloc[row]
        if getattr(column.dtype, "kind", "O") not in "iu" or int(value) == int(found[row]):
            continue
        if not kept:
            raise InvalidValueError(
                f"column {column.name!r} holds {value}, which isn't exact in float64, where noise is added: subtract "
                "an offset"
            )
        found[row] = _number_naming(int(value))
    return found


def _number_naming(value: object) -> int:
    """A number by which random streams tell this value from others: by its type and what it prints."""
    told = f"{type(value).__name__} {value!r}".encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:8], "big") >> (64 - _NAMING_BITS)


Answer = TypeVar("Answer", Certification, Prediction)


class HoldingClassifier(ArrayInterface):
    """g(u, v) = the class the model most often gives to (u + noise, v), where v are the coordinates that are held.

    Each answer is about one v: with probability at least 1−α, g is the same at every (u′, v) with u′ in the region,
    which has the coordinates that aren't held, in their order. Of another v it says nothing.

    Of a pandas table, held columns may hold texts, categories, numbers and dates: the model gets them as they are.
    Other values that are held reach it as they are as well: in float64 where float32 would round one, unless the plan
    states a type, which then refuses it.
    """

    def __init__(self, classifier: ModelClassifier, held: ArrayLike | Sequence[str]) -> None:
        if not isinstance(classifier, SmoothedClassifier):
            raise InvalidValueError(f"sigma levels are for whole inputs: {held!r} can't be held")
        if classifier.plan.search is not None:
            raise InvalidValueError(
                "while columns are held, each input has the plan's noise: leave the search for σ out (--sigma-search)"
            )
        real_noise(classifier.plan.noise, "hold, columns without noise (--hold),")
        self.classifier = classifier
        self._held = np.array(held)  # the caller's may change
        self._columns: HeldColumns = {}
        self._finer: SmoothedClassifier | None = None

    def __repr__(self) -> str:
        return f"{self.classifier!r}.holding({shorten(str(self._held), 60, placeholder=' …')})"

    @property
    def whole(self) -> SmoothedClassifier:
        """The classifier without anything held."""
        return self.classifier

    @property
    def voting(self) -> HoldingClassifier:
        """Itself."""
        return self

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
        numbers, voting._columns = table
        values = {name: column.values for name, column in voting._columns.items()}
        voting.classifier, voting._finer = self.classifier.of(base.with_columns(values)), None
        return voting, numbers[0] if getattr(x, "ndim", None) == 1 else numbers

    def mask(self, input_shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which coordinates of inputs of this shape are held."""
        return held_mask(self._held, input_shape, self.classifier.base.feature_names)

    def prepare(self, input_shape: tuple[int, ...], x: NDArray[Any] | None = None) -> CertifyPlan:
        """The plan as it will be used: the noise has the dimension of what isn't held. ``x``: any of the inputs."""
        mask = self.mask(input_shape)
        held, free = None if x is None else (mask, x), int((~mask).sum())
        numerics = self.classifier.prepared(input_shape, held, free).numerics
        return replace(self.classifier.plan, numerics=numerics).for_shape((free,))

    def _source(self, inputs: NDArray[Any], *, by_values: bool) -> Source | None:
        """Plan, model and inputs; where held columns are not numbers, inputs are what stands for them.

        None where the values held give inputs different types: a run states one.
        """
        rows = (self._row(0, x) for x in inputs)
        types = {id(voting): voting for voting in (self._voting(row, part.mask) for row, part in rows)}
        if len(types) > 1:
            return None
        (smoothed,) = types.values()
        plan = self._subject(0, inputs[0]).plan
        mask, device = self.mask(inputs.shape[1:]), smoothed.execution.device_kind
        return Source(plan, smoothed.base, inputs, device, smoothed.class_order, mask, by_values)

    def _certified(
        self, inputs: Inputs, on_votes: OnVotes | None, labels: Labels | None
    ) -> Iterator[Finished[Certification]]:
        """The random stream belongs to the whole input: two that differ in what is held have independent votes."""
        forecast = forecast_for(self.classifier.plan)

        def procedure(number: int, subject: _Subject) -> Procedure[Certification]:
            label = None if labels is None else labels(number)
            answer = yield from stopping_procedure(subject.free, subject.plan, label=label, forecast=forecast)
            return replace(answer, held=subject.part)

        return self._run(inputs, procedure, on_votes)

    def _predicted(
        self, inputs: Inputs, on_votes: OnVotes | None, procedure: PredictionOf
    ) -> Iterator[Finished[Prediction]]:
        return self._run(inputs, lambda _, subject: procedure(subject.plan), on_votes)

    def base_class(self, x: NDArray[Any]) -> int:
        """The model's class for one input without noise."""
        row, part = self._row(0, as_numpy(x))
        return self._voting(row, part.mask).prepared(row.shape, (part.mask, row)).label_of(row)

    def voter(self, index: int, x: NDArray[Any]) -> Voter:
        """The voter on one input: noise on what isn't held."""
        return self._subject(index, x).voter

    def _run(
        self, inputs: Inputs, asked: Callable[[int, _Subject], Procedure[Answer]], on_votes: OnVotes | None
    ) -> Iterator[Finished[Answer]]:
        subjects = ((number, self._subject(number, as_numpy(x))) for number, x in inputs)
        jobs = (Job((subject.voter,), asked(number, subject)) for number, subject in subjects)
        return self.classifier.engine.run(jobs, on_votes)

    def _subject(self, number: int, x: NDArray[Any]) -> _Subject:
        row, part = self._row(number, x)
        smoothed, held = self._voting(row, part.mask), part.mask
        prepared, free = smoothed.prepared(row.shape, (held, row)), np.array(row[~held])
        model = noisy_model(smoothed.plan, prepared, self.classifier.engine)
        plan = replace(smoothed.plan, numerics=prepared.numerics).for_shape(free.shape)
        return _Subject(model.voter(number, row, plan.noise, held), free, part, plan)

    def _row(self, number: int, x: NDArray[Any]) -> tuple[NDArray[Any], HeldPart]:
        mask = self.mask(x.shape)
        row = np.array(checked_input(number, x, mask.shape))
        told = np.array(row[mask])
        names = self.classifier.base.feature_names
        if self._columns and names is not None:
            told = told.astype(object)
            for place, of in enumerate(np.flatnonzero(mask).tolist()):
                if (column := self._columns.get(names[of])) is not None:
                    row[of] = column.places[float(row[of])]
                    told[place] = column.values[int(row[of])]
        told.setflags(write=False)
        return row, HeldPart(mask, told)

    def _voting(self, row: NDArray[Any], held: NDArray[np.bool_]) -> SmoothedClassifier:
        smoothed = self.classifier
        if smoothed.plan.numerics.dtype != AUTO_DTYPE or exact_in(row[held], np.float32).all():
            return smoothed
        if self._finer is None or self._finer.plan.seed != smoothed.plan.seed:
            self._finer = copy.copy(smoothed)
            self._finer.settle_numerics(Numerics("float64"))
        return self._finer


@dataclass(frozen=True, eq=False)
class _Subject:
    """An input: its voter, the coordinates that have noise, those that are held, and the plan for the first."""

    voter: Voter
    free: NDArray[Any]
    part: HeldPart
    plan: CertifyPlan


def held_finely(dataset: Dataset, held: NDArray[np.bool_]) -> bool:
    """Whether float32 would round a value that is held, of any input: shards of one run have one type."""
    if dataset.input(0).dtype == np.float32:
        return False
    return not all(exact_in(x[held], np.float32).all() for _, x in dataset.each(range(len(dataset))))
