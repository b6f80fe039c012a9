"""Statement: what a run says of itself, in typed fields that may be unknown; this module alone knows their keys."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, ItemsView, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeGuard, TypeVar, overload

from smoothcert.errors import InvalidValueError, RunError
from smoothcert.noise import Noise
from smoothcert.runs.noise_files import stated_noise
from smoothcert.runs.shards import Shard

_MOST = 2**53  # of votes, inputs and numbers of an input
_LARGEST_SIGMA = 1e50

T = TypeVar("T")


class Stated(Generic[T]):
    """A field of a statement: None where it is unknown, else a value that fits."""

    def __init__(self, fits: Callable[[object], TypeGuard[T]]) -> None:
        self.fits = fits

    def __set_name__(self, owner: type[Statement], name: str) -> None:
        self.name = name
        owner.fields = {**owner.fields, name: self}

    @overload
    def __get__(self, statement: None, owner: type) -> Self: ...
    @overload
    def __get__(self, statement: Statement, owner: type) -> T | None: ...
    def __get__(self, statement: Statement | None, owner: type) -> Self | T | None:
        if statement is None:
            return self
        found: T | None = statement.value(self.name)
        return found


class Statement:
    """Fields by attribute, and the JSON they were made from, which comes back as it was.

    Values may be of any origin: ValueError names the field that can't be right. What a statement has beyond its typed
    fields (a training plan's knobs, a later version's additions) is kept and compared, and not interpreted.
    """

    fields: ClassVar[Mapping[str, Stated[Any]]] = {}
    part: ClassVar[str]
    """Its key in ``run.json``."""

    def __init__(self, stated: Mapping[str, Any] | None = None) -> None:
        self._stated = dict(stated or {})
        for name, field in self.fields.items():
            value = self._stated.get(name)
            if value is not None and not field.fits(value):
                raise ValueError(f"{self.part}.{name} can't be {shown(value)}")
        for name, value in self._stated.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{self.part}.{name} is {value}")

    def as_json(self) -> dict[str, Any]:
        """Every key and value, as they were given."""
        return dict(self._stated)

    def value(self, of: str | Stated[Any]) -> Any:
        """The value of a field, or of a key that the user named; None where it isn't there."""
        return self._stated.get(of if isinstance(of, str) else of.name)

    def has(self, field: Stated[Any]) -> bool:
        """Whether the field is there, if only to say that its value is unknown."""
        return field.name in self._stated

    def known(self, field: Stated[T]) -> T:
        """The field's value; RunError where it is unknown."""
        found: T | None = self.value(field.name)
        if found is None:
            raise RunError(f"the run doesn't state {self.part}.{field.name}")
        return found

    def but(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return type(self)(self._stated | changes)

    def items(self) -> ItemsView[str, Any]:
        """Every key and value, for listing."""
        return self._stated.items()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._stated == other._stated

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stated!r})"


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a number of things."""
    return type(value) is int and 0 <= value < _MOST


def _text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(map(_text, value))


def _places(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(map(is_count, value))


def _classes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int and -1 <= one < _MOST for one in value)


def _natural(value: object) -> TypeGuard[int]:
    return type(value) is int and 1 <= value <= _MOST


def _seed(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _size(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value <= _LARGEST_SIGMA  # type: ignore[operator]


def _size_or_none(value: object) -> TypeGuard[float]:
    return (value == 0 and type(value) in (int, float)) or _size(value)


def _probability(value: object) -> TypeGuard[float]:
    return type(value) is float and 0 < value < 1


def _sizes(value: object) -> TypeGuard[list[float]]:
    return isinstance(value, list) and bool(value) and all(map(_size, value))


def _fields(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)


def _kind_or_number(value: object) -> TypeGuard[str | int]:
    return _text(value) or _natural(value)


def _range(value: object) -> TypeGuard[list[float]]:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(end) in (int, float) and math.isfinite(end) for end in value)
        and value[0] <= value[1]
    )


def _anything(value: object) -> TypeGuard[Any]:  # noqa: ARG001
    return True


def _shard(value: object) -> TypeGuard[str]:
    if not isinstance(value, str):
        return False
    try:
        return str(Shard.parse(value)) == value
    except InvalidValueError:
        return False


class PlanStatement(Statement):
    """The plan of a run: a :class:`~smoothcert.smoothing.plan.CertifyPlan`'s, what is known of an imported log's, a
    fit's or a training's.
    """

    part = "plan"
    noise = Stated(_text)
    sigma = Stated(_size_or_none)
    """0 in plans of training alone: a network that was trained without noise."""
    least_sigma = Stated(_size)
    sigmas_sha256 = Stated(_text)
    norm = Stated(_text)
    bound = Stated(_text)
    votes = Stated(_kind_or_number)
    """A kind in certify's plans, a number in fits'."""
    n0 = Stated(_natural)
    n = Stated(_natural)
    alpha = Stated(_probability)
    seed = Stated(_seed)
    stop = Stated(_texts)
    stream = Stated(_natural)
    levels = Stated(_natural)
    cells_per_sigma = Stated(_natural)
    dimension = Stated(_natural)
    dtype = Stated(_text)
    route = Stated(_text)
    chunk = Stated(_natural)
    block = Stated(_natural)
    generator = Stated(_text)
    """What noise was drawn by; sfc64 where nothing is stated."""
    device = Stated(_text)
    sigma_search = Stated(_text)
    sigma_levels = Stated(_sizes)
    """The σ among which a chooser gives each point its own, ascending."""
    chooser = Stated(_fields)
    """What the chooser is and how it votes."""
    stateful = Stated(_anything)
    memory = Stated(_anything)
    recertified_from = Stated(_anything)
    init = Stated(_size)

    def __init__(self, stated: Mapping[str, Any] | None = None) -> None:
        super().__init__(stated)
        if self.stop and self.n is None:
            raise ValueError("plan.stop is stated without n, the most votes it can end")

    def noise_in(self, directory: Path) -> Noise:
        """The noise it states; the directory holds the scales of noise that has one for each coordinate."""
        return stated_noise(self.known(PlanStatement.noise), self.sigma, self.sigmas_sha256, directory)

    @property
    def search_knobs(self) -> dict[str, Any]:
        """The knobs of its σ search."""
        start = "sigma_search."
        return {key.removeprefix(start): value for key, value in self.items() if key.startswith(start)}

    @property
    def stops(self) -> Sequence[str]:
        """The texts of its stop rules and budget."""
        return self.stop or ()


class ModelStatement(Statement):
    """Which model it was."""

    part = "model"
    name = Stated(_text)
    sha256 = Stated(_text)
    held = Stated(_places)
    """The coordinates of an input, counted through, that have no noise: certificates are about the others."""
    declared = Stated(_anything)
    """What the caller said of it; it is a part of the hash, too."""
    answers = Stated(_classes)
    """The classes of noisy rows of the data set's first inputs, the same rows in every shard."""
    order = Stated(_places)
    """Class c of the run is the model's class order[c]; not there where they are numbered alike."""


class DataStatement(Statement):
    """Which data, and which inputs of them were asked for."""

    part = "data"
    name = Stated(_text)
    sha256 = Stated(_text)
    log = Stated(_text)
    log_sha256 = Stated(_text)
    inputs = Stated(is_count)
    skip = Stated(_natural)
    planned = Stated(_anything)
    shard = Stated(_shard)
    """Written I/N: every N-th of the inputs that are planned, from the I-th on, is this run's."""
    levels = Stated(_anything)
    radius_decimals = Stated(_anything)
    radius_digits = Stated(_anything)

    @property
    def asked_for(self) -> Sequence[int] | None:
        """The inputs that were asked for, ascending: stated as their number (of every ``skip``-th) or as a list.

        None where it says neither, as runs of earlier versions and logs that were cut off don't.
        """
        planned = self.planned
        if isinstance(planned, list) and all(is_count(index) for index in planned):
            return tuple(sorted(planned))
        if not is_count(planned):
            return None
        skip = self.skip or 1
        asked = range(0, planned * skip, skip)
        if self.inputs is not None and len(asked) > len(range(0, self.inputs, skip)):
            return None
        return asked if self.shard is None else Shard.parse(self.shard).part(asked)

    @property
    def allowed(self) -> Sequence[int] | None:
        """Every ``skip``-th input of the data, the most that could have been asked for; None where it isn't stated."""
        return None if self.inputs is None else range(0, self.inputs, self.skip or 1)


class OriginStatement(Statement):
    """Where model and data were found, as the user named them; no part of what fixes the results."""

    part = "origin"
    model = Stated(_text)
    architecture = Stated(_text)
    dataset = Stated(_text)
    split = Stated(_text)
    data_dir = Stated(_text)
    method = Stated(_text)
    memory = Stated(_text)
    feature_names = Stated(_texts)
    input_range = Stated(_range)
    """The smallest and the largest number among the inputs of the data set."""
    trained_range = Stated(_range)
    """The same of the inputs that the model was trained on."""
    trained = Stated(_anything)


def shown(value: object) -> str:
    """A value as JSON has it, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else f"{text[:18]}…{text[-4:]}"
