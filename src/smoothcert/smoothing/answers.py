"""Answers: what CERTIFY and PREDICT say of one input, and of many as a list with columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_DOWN, Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import InvalidValueError, warn_deprecated
from smoothcert.extras import require
from smoothcert.regions.bodies import CertifiedRegion
from smoothcert.runs.parquet import write_columns
from smoothcert.runs.records import (
    Record,
    Records,
    average_certified_radius,
    certified_accuracy,
    correct_radii,
    objects,
    step_counts,
)
from smoothcert.runs.side_files import LevelEvidence, SearchResult
from smoothcert.smoothing.inputs import as_numpy, label_numbers, same_values
from smoothcert.tally import ABSTAIN, Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from smoothcert.runs.run import Run
    from smoothcert.smoothing.saving import Source


@dataclass(frozen=True, eq=False)
class HeldPart:
    """Coordinates of an input that noise was never added to, and their values: a certificate is about these alone."""

    mask: NDArray[np.bool_]
    values: NDArray[Any]

    def free(self, point: ArrayLike) -> NDArray[Any] | None:
        """The other coordinates of a point, in their order; None if one of these differs."""
        given = as_numpy(point)
        if given.shape != self.mask.shape:
            raise InvalidValueError(f"a point must have the shape {self.mask.shape}, got {given.shape}")
        if not same_values(given[self.mask], self.values):
            return None
        free = given[~self.mask]
        return as_numpy(free.tolist()) if free.dtype == object else free  # beside texts, all are objects


@dataclass(frozen=True)
class Evidence:
    """What a certificate rests on: its votes and their bounds, how σ was found, and the grid that it speaks of.

    The promise is about every input on the plan's grid (all 8-bit pictures, say). Of *any* input within
    ``radius_off_grid`` of this one, the nearest grid point has the certified answer.
    """

    candidate: int
    """The class that the selection votes chose, certified or not."""
    selection: Tally
    """The votes that chose the class."""
    estimation: Tally
    """The fresh votes that bounded its probability."""
    bounds: ClassBounds
    """Of the candidate's probability from below, and of its strongest rival's from above."""
    search: SearchResult | None = None
    """How this input's own σ was found, where the plan searches for one."""
    levels: LevelEvidence | None = None
    """Every vote it rests on, where a chooser gives each point its σ."""
    stopped: str | None = None
    """Why voting ended, where the plan has rules for that."""
    shift: float = 0.0
    """How far the region's centre, a grid point, is from the input, in the certificate's norm."""
    radius_off_grid: float = 0.0
    """Any input this close has a grid point nearest to it that is certified."""
    volume_radius: float | None = None
    """Radius of the ball of equal volume, where the region is not a ball."""
    plan_seed: int | None = None
    """The plan's seed, where its stages have seeds of their own."""

    @property
    def votes(self) -> tuple[int, ...]:
        """The fresh votes for each class."""
        return self.estimation.counts


@dataclass(frozen=True, repr=False)
class Certification:
    """CERTIFY's answer for one input.

    Unless it abstained: with probability at least 1−α over its votes, the smoothed classifier answers
    ``predicted`` everywhere in ``region``: an open ball of ``radius`` in ``norm`` around the input, or around the grid
    point nearest to it (``evidence.shift`` away). The smoothed classifier is the one with this ``sigma``, for every
    point of the region.

    Where the noise has a scale for each dimension, the region is not a ball: ``radius`` is that of the largest ball
    inside, and ``sigma`` the geometric mean of the scales. Where coordinates were ``held``, the region has the others
    alone.
    """

    index: int
    """Number of the input's random streams."""
    predicted: int
    """The certified class by number; ABSTAIN (−1) if there is none."""
    radius: float
    """Of the largest ball around the region's centre that is certified; 0 if nothing is."""
    norm: str
    """In which the radius is: l2 or l1."""
    region: CertifiedRegion | None
    """Everything that is certified; None if nothing is."""
    sigma: float
    """Standard deviation of the noise; the geometric mean where there are several."""
    evidence: Evidence
    """Votes, bounds, search and grid: what the certificate rests on."""
    seconds: float = 0.0
    """Worker time that the votes took."""
    label: Any = None
    """What the model itself calls the class; None where it abstained or has only numbers."""
    row: int | None = field(default=None, compare=False)
    """The input's place in the array that was given."""
    held: HeldPart | None = field(default=None, compare=False)
    """The coordinates without noise, where there are some: nothing is said of inputs whose held ones differ."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Fields of the evidence by their old place, with a warning."""
            if name not in _OF_EVIDENCE or "evidence" not in vars(self):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_deprecated(f"Certification.{name}", f"Certification.evidence.{name}")
            return getattr(self.evidence, name)

    def covers(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certified: it lies in the region, and what is held is unchanged."""
        inside = as_numpy(point) if self.held is None else self.held.free(point)
        return self.region is not None and inside is not None and self.region.contains(inside)

    def __repr__(self) -> str:
        """A line: what was certified, and of which input; the radius is rounded down."""
        return f"Certification({_where(self)}, {_class_of(self)}, {_radius_of(self)}, sigma={self.sigma:g})"

    @property
    def seed(self) -> int:
        """The seed of the plan that its votes follow from: the operating system's unless one was given."""
        found = self.evidence.plan_seed
        return self.evidence.estimation.stream.seed if found is None else found

    @property
    def abstained(self) -> bool:
        """Whether the votes were too close to certify anything."""
        return self.predicted == ABSTAIN


_OF_EVIDENCE = frozenset(each.name for each in fields(Evidence))


def with_evidence(answer: Certification, **changes: Any) -> Certification:
    """The same answer, with other fields of its evidence."""
    return replace(answer, evidence=replace(answer.evidence, **changes))


@dataclass(frozen=True, repr=False)
class Prediction:
    """PREDICT's answer: with probability at least 1−α it is the smoothed classifier's class, or ABSTAIN."""

    index: int
    """Number of the input's random streams."""
    predicted: int
    """The class by number; ABSTAIN (−1) if the votes don't tell."""
    p_value: float
    """Of the test whether the two classes ahead are equally likely."""
    tally: Tally
    """The votes."""
    seconds: float = 0.0
    """Worker time that they took."""
    label: Any = None
    """What the model itself calls the class; None where it abstained or has only numbers."""
    row: int | None = field(default=None, compare=False)
    """The input's place in the array that was given."""
    plan_seed: int | None = None
    """The plan's seed, where its stages have seeds of their own."""

    def __repr__(self) -> str:
        return f"Prediction({_where(self)}, {_class_of(self)}, p_value={self.p_value:.3g})"

    @property
    def seed(self) -> int:
        """The seed of the plan that its votes follow from: the operating system's unless one was given."""
        return self.tally.stream.seed if self.plan_seed is None else self.plan_seed

    @property
    def abstained(self) -> bool:
        """Whether the two classes ahead were too close to tell apart."""
        return self.predicted == ABSTAIN


def _where(answer: Certification | Prediction) -> str:
    return f"index={answer.index}" if answer.row is None else f"row={answer.row}"


def _class_of(answer: Certification | Prediction) -> str:
    if answer.abstained:
        return "abstained"
    return f"predicted={answer.predicted}" + ("" if answer.label is None else f", label={answer.label!r}")


def _radius_of(answer: Certification) -> str:
    """Rounded down to four digits: a printed radius is certified as well."""
    if not answer.radius > 0:
        return "radius=0"
    digits = Context(prec=4, rounding=ROUND_DOWN).create_decimal_from_float(answer.radius)
    return f"radius={float(digits):g}"


_SHOWN = 3  # answers at either end of a long list


Answer = TypeVar("Answer", bound=Certification | Prediction)


class Answers(list[Answer]):
    """A list of answers, in the order of the inputs, with a column for each of their fields that is a number or a name.

    ``class_names``: what the model calls its classes.
    """

    _columns: ClassVar[tuple[str, ...]]

    def __init__(self, answers: Iterable[Answer] = (), class_names: Sequence[Any] | None = None) -> None:
        super().__init__(answers)
        self.class_names = None if class_names is None else tuple(class_names)

    @overload
    def __getitem__(self, place: SupportsIndex) -> Answer: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Answer | Self:
        if isinstance(place, slice):
            return type(self)(super().__getitem__(place), self.class_names)
        return super().__getitem__(place)

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The classes by number; ABSTAIN (−1) where the classifier abstained."""
        return np.array([answer.predicted for answer in self], dtype=np.int64)

    @property
    def label(self) -> NDArray[np.object_]:
        """What the model calls the classes; None where it abstained or has only numbers."""
        return objects([answer.label for answer in self])

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Where the votes were too close to answer."""
        return np.array([answer.abstained for answer in self], dtype=np.bool_)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The worker time that the votes took."""
        return np.array([answer.seconds for answer in self], dtype=np.float64)

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns by name, as plain values."""
        return {"row": self._rows()} | {name: getattr(self, name).tolist() for name in self._columns}

    def to_dataframe(self) -> Any:
        """The columns as a pandas DataFrame, a row for each input."""
        pandas = require("pandas", "to_dataframe(), unlike to_dict(),")
        # Labels as they are: of numbers and None pandas would make floats and NaN.
        return pandas.DataFrame(self.to_dict() | {"label": pandas.Series(self.label, dtype=object)})

    def to_parquet(self, path: str | Path) -> Path:
        """The columns as a Parquet file, whose path comes back; for pandas, polars and DuckDB."""
        write_columns(self.to_dict(), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        shown = [repr(answer) for answer in list(self)]
        if len(shown) > 2 * _SHOWN:
            shown = [*shown[:_SHOWN], f"… {len(shown) - 2 * _SHOWN} more …", *shown[-_SHOWN:]]
        lines = "".join(f"\n  {line}," for line in shown)
        return f"{type(self).__name__}([{lines}\n])" if shown else f"{type(self).__name__}([])"

    def _rows(self) -> list[int]:
        return [place if answer.row is None else answer.row for place, answer in enumerate(self)]


class Predictions(Answers[Prediction]):
    """PREDICT's answers to the inputs of a batch, in their order."""

    _columns = ("predicted", "label", "abstained", "p_value", "seconds")

    @property
    def p_value(self) -> NDArray[np.float64]:
        """Of the test whether the two classes ahead are equally likely."""
        return np.array([answer.p_value for answer in self], dtype=np.float64)


class Certifications(Answers[Certification]):
    """CERTIFY's answers to the inputs of a batch, in their order."""

    _columns = ("predicted", "label", "radius", "abstained", "sigma", "seconds")
    source: Source | None = None
    """Plan, model and inputs, where a classifier gave these answers."""

    def save(self, path: str | Path, labels: ArrayLike, *, name: str = "data") -> Run:
        """Write the answers as a run directory, which table, plot, report and verify open.

        ``labels`` are numbers, or as the model calls its classes; ``name`` is what tables call the data. The directory
        must not hold a run yet.
        """
        from smoothcert.smoothing.saving import labelled_inputs, save_records

        if self.source is None or len(self) != len(self.source.inputs):
            raise InvalidValueError("save takes all answers of one certify call, no slices or lists")
        classes = len(self[0].evidence.votes)
        data = labelled_inputs(self.source.inputs, labels, self.class_names, classes, name)
        records = [record_of(answer, row, int(data.labels[row])) for row, answer in enumerate(self)]
        return save_records(self.source, records, data, Path(path))

    @property
    def radius(self) -> NDArray[np.float64]:
        """The certified radii; 0 where nothing was certified."""
        return np.array([answer.radius for answer in self], dtype=np.float64)

    @property
    def sigma(self) -> NDArray[np.float64]:
        """The noise of each."""
        return np.array([answer.sigma for answer in self], dtype=np.float64)

    def records(self, y: ArrayLike) -> Records:
        """The answers beside their labels ``y``, as a run keeps them; numbered by their place."""
        classes = len(self[0].evidence.votes) if self else 0  # votes are counted for each
        labels = label_numbers(y, self.class_names, len(self), classes, "y")
        return Records.of(
            record_of(answer, place, label) for place, (answer, label) in enumerate(zip(self, labels))
        )

    def accuracy(self, y: ArrayLike, radii: float | Sequence[float] = 0.0) -> Any:
        """Certified accuracy: the share of inputs that are right and certified at radius ≥ r, for each of ``radii``.

        One number for one radius. A wrong answer and an abstention both count against it.
        """
        asked = as_numpy(radii)
        if asked.dtype.kind not in "biuf" or asked.ndim > 1 or not bool((asked >= 0).all()):
            raise InvalidValueError(f"radii must be numbers that aren't negative, got {radii!r}")
        found = certified_accuracy(self.records(y), np.atleast_1d(asked).astype(np.float64).tolist())
        return float(found[0]) if asked.ndim == 0 else found

    def acr(self, y: ArrayLike) -> float:
        """Average certified radius: wrong answers and abstentions count as 0."""
        return average_certified_radius(self.records(y))

    def plot(self, y: ArrayLike | None = None, *, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw certified accuracy against the radius: without ``y`` the share that is certified, right or wrong.

        Onto ``ax``, or a new figure of pyplot's; ``style`` goes to matplotlib's ``step``. The axes come back.
        """
        if not self:
            raise InvalidValueError("there is nothing to plot: no input was certified")
        sizes = np.sort(self.radius[~self.abstained]) if y is None else correct_radii(self.records(y))
        if ax is None:
            ax = require("matplotlib.pyplot", "plot()").subplots()[1]
        radii, counts = step_counts(sizes)
        ax.step(radii, 100 * counts / len(self), where="post", **style)
        ax.set_xlabel(f"ℓ{self[0].norm.removeprefix('l')} radius")
        ax.set_ylabel("certified inputs (%)" if y is None else "certified accuracy (%)")
        ax.set_xlim(left=0.0)
        ax.set_ylim(0.0, 101.5)
        return ax


def record_of(answer: Certification, index: int, label: int, base: int | None = None) -> Record:
    """What a run keeps of an answer to the input called ``index``."""
    evidence, own = answer.evidence, (answer.predicted, answer.radius, answer.sigma, answer.seconds)
    tallies, shape = (evidence.selection, evidence.estimation), (evidence.volume_radius, evidence.stopped)
    return Record(index, label, *own, *tallies, base, *shape)
