"""Statement: what a run says of itself, in typed fields that may be unknown; this module alone knows their keys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, ItemsView, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, RunError, check_count
from smoothcert.perturb.base import NOISES, PERTURBATIONS, Perturbation
from smoothcert.perturb.diagonal import (
    DIAGONAL_NOISES,
    DiagonalNoise,
    encoded_sigmas,
    load_sigmas,
    sigmas_sha256,
    write_sigmas,
)
from smoothcert.registry import suggesting_fields
from smoothcert.runs.layout import RunFiles

_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``of``, counted from 1: every ``of``-th of the inputs, so that parts are about as hard."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InvalidValueError(f"a shard is I/N with I from 1 to N, got {self}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From ``3/8``."""
        written = _SHARD.fullmatch(text)
        if written is None:
            raise InvalidValueError(f"a shard is written I/N, such as 3/8, got {text!r}")
        return cls(int(written[1]), int(written[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def part(self, indices: range) -> range:
        """Its own of the inputs."""
        return indices[self.number - 1 :: self.of]


@suggesting_fields
@dataclass(frozen=True)
class Choice:
    """Which inputs of a data set: every ``skip``-th of a range, at most ``most``, and of these one ``shard``."""

    skip: int = 1
    """Every so many-th input."""
    most: int | None = None
    """No more than this many; None for all."""
    shard: Shard | None = None
    """The part of them that this run is to do; None for all."""
    first: int = 0
    """Where the range begins."""
    end: int | None = None
    """The first input behind it; None for the end of the data set."""

    def __post_init__(self) -> None:
        check_count("skip", self.skip)
        check_count("first", self.first, least=0)
        if self.end is not None and self.end <= self.first:
            raise InvalidValueError(
                f"range must end behind its beginning, got {self.first}:{self.end}: 500:1000 are inputs 500 to 999"
            )
        if self.most is not None:
            check_count("max", self.most)

    def planned(self, size: int) -> range:
        """The positions that all shards together take of a data set of ``size`` inputs."""
        end = size if self.end is None else min(self.end, size)
        return range(self.first, end, self.skip)[: self.most]

    def indices(self, size: int) -> range:
        """The chosen positions in a data set of ``size`` inputs."""
        return self.planned(size) if self.shard is None else self.shard.part(self.planned(size))


def save_sigmas(directory: Path, noise: Perturbation) -> None:
    """Write the σ vector of a diagonal noise beside a run's statement; other noises need no file.

    A vector that is there already must be the same: results of two noises don't belong in one run.
    """
    path = RunFiles(directory).sigmas
    if not isinstance(noise, DiagonalNoise):
        return
    if path.exists():
        _check_hash(path, load_sigmas(path), noise.sha256)
    else:
        write_sigmas(path, noise.sigmas)


def sigmas_files(noise: Perturbation) -> dict[str, bytes]:
    """The file that :func:`save_sigmas` writes, by name; none where the noise needs none."""
    return {RunFiles.sigmas.name: encoded_sigmas(noise.sigmas)} if isinstance(noise, DiagonalNoise) else {}


def stated_noise(plan: Mapping[str, Any], directory: Path) -> Perturbation:
    """The noise that a run's plan states; a diagonal one's scales are read from the run directory and verified."""
    name, sigma, sha256 = plan["noise"], plan.get("sigma"), plan.get("sigmas_sha256")
    if name in PERTURBATIONS:
        try:
            return PERTURBATIONS[name].stated(plan)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{directory} doesn't state its {name} perturbation: {error}") from None
    if name in DIAGONAL_NOISES:
        if sha256 is None:
            raise RunError(f"{directory} doesn't state the SHA-256 of its noise's scales; certify again")
        path = RunFiles(directory).sigmas
        sigmas = load_sigmas(path)
        _check_hash(path, sigmas, sha256)
        return DIAGONAL_NOISES[name](sigmas)
    if sigma is None:
        raise RunError(f"{directory} doesn't state the sigma of its noise; certify again")
    return NOISES[name](sigma)


def _check_hash(path: Path, sigmas: NDArray[np.float64], stated: str) -> None:
    sha256 = sigmas_sha256(sigmas)
    if sha256 != stated:
        raise RunError(
            f"{path} isn't the vector that the run states (SHA-256 {sha256[:12]}…, stated {stated[:12]}…): the file "
            "was replaced or is damaged; restore it or choose another directory"
        )


_MOST = 2**53  # of votes, inputs and numbers of an input
_LARGEST_SIGMA = 1e50

T = TypeVar("T")


class Stated(Generic[T]):
    """A field of a statement: None where it is unknown, else a value that fits."""

    def __init__(self, fits: Callable[[Any], bool]) -> None:
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
        value: T | None = statement.value(self.name)
        return value


class Statement:
    """Fields by attribute, and the JSON they were made from, which comes back as it was.

    Values may be of any origin: ValueError names the field that can't be right. What a statement has beyond its typed
    fields (a training plan's options, a later version's additions) is kept and compared, and not interpreted.
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
        value: T | None = self.value(field.name)
        if value is None:
            raise RunError(f"the run doesn't state {self.part}.{field.name}")
        return value

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


def text() -> Stated[str]:
    """A field of text."""
    return Stated(lambda value: isinstance(value, str))


def whole(least: int = 1, most: float = _MOST) -> Stated[int]:
    """A field of a whole number."""
    return Stated(lambda value: type(value) is int and least <= value <= most)


def size(zero: bool = False) -> Stated[float]:
    """A field of a number above 0, or of 0 where that is said."""
    return Stated(
        lambda value: type(value) in (int, float) and (0 < value <= _LARGEST_SIGMA or (zero and value == 0))
    )


def listed(of: Stated[T], least: int = 0) -> Stated[list[T]]:
    """A field of a list, each item of which would fit ``of``."""
    return Stated(lambda value: isinstance(value, list) and len(value) >= least and all(map(of.fits, value)))


def span() -> Stated[list[float]]:
    """A field of the smallest and the largest of some numbers."""
    ends = listed(Stated[float](lambda end: type(end) in (int, float) and math.isfinite(end)), 2)
    return Stated(lambda value: ends.fits(value) and len(value) == 2 and value[0] <= value[1])


def anything() -> Stated[Any]:
    """A field whose readers check its value."""
    return Stated(lambda _: True)


def _is_shard(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(Shard.parse(value)) == value
    except InvalidValueError:
        return False


class PlanStatement(Statement):
    """The plan of a run: a :class:`~smoothcert.smoothing.plan.CertifyPlan`'s, what is known of an imported log's, a
    fit's or a training's.
    """

    part = "plan"
    noise = text()
    sigma = size(zero=True)
    """0 in plans of training alone: a network that was trained without noise."""
    least_sigma = size()
    sigmas_sha256 = text()
    norm = text()
    bound = text()
    votes = Stated[str | int](lambda value: text().fits(value) or whole().fits(value))
    """A kind in certify's plans, a number in fits'."""
    n0 = whole()
    n = whole()
    alpha = Stated[float](lambda value: type(value) is float and 0 < value < 1)
    seed = whole(0, math.inf)
    stop = listed(text())
    stream = whole()
    levels = whole()
    cells_per_sigma = whole()
    dimension = whole()
    dtype = text()
    route = text()
    chunk = whole()
    block = whole()
    generator = text()
    """What noise was drawn by; sfc64 where nothing is stated."""
    device = text()
    sigma_search = text()
    sigma_levels = listed(size(), 1)
    """The σ among which a chooser gives each point its own, ascending."""
    chooser = Stated[Mapping[str, Any]](lambda value: isinstance(value, dict))
    """What the chooser is and how it votes."""
    stateful = anything()
    memory = anything()
    recertified_from = anything()
    init = size()

    def __init__(self, stated: Mapping[str, Any] | None = None) -> None:
        super().__init__(stated)
        if self.stop and self.n is None:
            raise ValueError("plan.stop is stated without n, the most votes it can end")

    def noise_in(self, directory: Path) -> Perturbation:
        """The noise it states; the directory holds the scales of noise that has one for each coordinate."""
        self.known(PlanStatement.noise)
        return stated_noise(self.as_json(), directory)

    @property
    def search_options(self) -> dict[str, Any]:
        """The options of its σ search."""
        start = "sigma_search."
        return {key.removeprefix(start): value for key, value in self.items() if key.startswith(start)}

    @property
    def stops(self) -> Sequence[str]:
        """The texts of its stop rules and budget."""
        return self.stop or ()


class ModelStatement(Statement):
    """Which model it was."""

    part = "model"
    name = text()
    sha256 = text()
    held = listed(whole(0, _MOST - 1), 1)
    """The coordinates of an input, counted through, that have no noise: certificates are about the others."""
    declared = anything()
    """What the caller said of it; it is also a part of the hash."""
    answers = listed(whole(-1, _MOST - 1))
    """The classes of noisy rows of the data set's first inputs, the same rows in every shard."""
    order = listed(whole(0, _MOST - 1), 1)
    """Class c of the run is the model's class order[c]; not there where they are numbered alike."""


BY_VALUES = "values"


class DataStatement(Statement):
    """Which data, and which inputs of them were asked for."""

    part = "data"
    name = text()
    sha256 = text()
    log = text()
    log_sha256 = text()
    inputs = whole(0, _MOST - 1)
    skip = whole()
    first = whole(0, _MOST - 1)
    """The first input that was asked for; not there where that is input 0."""
    planned = anything()
    shard = Stated[str](_is_shard)
    """Written I/N: every N-th of the inputs that are planned, from the I-th on, is this run's."""
    levels = anything()
    streams = text()
    """BY_VALUES where an input's random streams are named by its values instead of its number."""
    radius_decimals = anything()
    radius_digits = anything()

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
        skip, first = self.skip or 1, self.first or 0
        asked = range(first, first + planned * skip, skip)
        if self.inputs is not None and len(asked) > len(range(first, self.inputs, skip)):
            return None
        return asked if self.shard is None else Shard.parse(self.shard).part(asked)

    @property
    def allowed(self) -> Sequence[int] | None:
        """Every ``skip``-th input of the data, the most that could have been asked for; None where it isn't stated."""
        return None if self.inputs is None else range(self.first or 0, self.inputs, self.skip or 1)


class OriginStatement(Statement):
    """Where model and data were found, as the user named them; no part of what fixes the results."""

    part = "origin"
    model = text()
    architecture = text()
    dataset = text()
    split = text()
    data_dir = text()
    method = text()
    memory = text()
    feature_names = listed(text())
    input_range = span()
    """The smallest and the largest number among the inputs of the data set."""
    trained_range = span()
    """The same of the inputs that the model was trained on."""
    trained = anything()


def shown(value: object) -> str:
    """A value as JSON has it, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 24 else f"{text[:18]}…{text[-4:]}"
