"""Answers: what CERTIFY and PREDICT say of one input."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.regions import CertifiedRegion
from smoothcert.sigma_levels import LevelEvidence
from smoothcert.sigma_search import SearchResult
from smoothcert.smoothing.inputs import as_numpy, same_values
from smoothcert.tally import ABSTAIN, Tally


@dataclass(frozen=True, eq=False)
class HeldPart:
    """Coordinates of an input that noise was never added to, and their values: a certificate is about these alone."""

    mask: NDArray[np.bool_]
    values: NDArray[Any]

    def free(self, point: ArrayLike) -> NDArray[Any] | None:
        """The other coordinates of a point, in their order; None if one of these differs."""
        given = as_numpy(point)
        if given.shape != self.mask.shape:
            raise InvalidValueError(
                f"a point of shape {given.shape} isn't an input of shape {self.mask.shape}"
            )
        if not same_values(given[self.mask], self.values):
            return None
        free = given[~self.mask]
        return as_numpy(free.tolist()) if free.dtype == object else free  # beside texts, all are objects


@dataclass(frozen=True, repr=False)
class Certification:
    """CERTIFY's answer for one input.

    Unless it abstained: with probability at least 1−α over its votes, the smoothed classifier answers
    ``predicted`` everywhere in ``region`` (an open ball of ``radius`` in ``norm`` around the input). The smoothed
    classifier is the one with this ``sigma``, for every point of the region. ``stopped`` says why voting ended, where
    the plan has rules for that.

    ``region`` is centred at a point of the plan's grid: at the input itself if ``shift`` is 0, else at the nearest one,
    ``shift`` away in ``norm``. The promise is about every input on the grid (all 8-bit pictures, say); of *any*
    input within ``radius_off_grid`` of this one, the nearest grid point is answered so.

    Where the noise has a scale for each dimension the region is no ball: ``radius`` is that of the largest ball inside,
    ``volume_radius`` (None for balls) that of the ball of equal volume, ``sigma`` the geometric mean of the scales.
    Where coordinates were ``held``, the region has the others alone.
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
    bounds: ClassBounds
    """Of the candidate's probability from below, and of its strongest rival's from above."""
    candidate: int
    """The class that the selection votes chose, certified or not."""
    selection: Tally
    """The votes that chose the class."""
    estimation: Tally
    """The fresh votes that bounded its probability."""
    sigma: float
    """Standard deviation of the noise; the geometric mean where there are several."""
    seconds: float = 0.0
    """Worker time that the votes took."""
    search: SearchResult | None = None
    """How this input's own σ was found, where the plan searches for one."""
    levels: LevelEvidence | None = None
    """Every vote it rests on, where a chooser gives each point its σ; ``sigma`` is then the level of the input."""
    stopped: str | None = None
    """Why voting ended, where the plan has rules for that."""
    volume_radius: float | None = None
    """Radius of the ball of equal volume, where the region is no ball."""
    shift: float = 0.0
    """How far the region's centre is from the input, in ``norm``."""
    radius_off_grid: float = 0.0
    """Any input this close has a grid point nearest to it that is certified."""
    label: Any = None
    """What the model itself calls the class; None where it abstained or has only numbers."""
    row: int | None = field(default=None, compare=False)
    """The input's place in the array that was given."""
    held: HeldPart | None = field(default=None, compare=False)
    """The coordinates without noise, where there are some: nothing is said of inputs whose held ones differ."""
    plan_seed: int | None = None
    """The plan's seed, where its stages have seeds of their own."""

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
        return self.estimation.stream.seed if self.plan_seed is None else self.plan_seed

    @property
    def abstained(self) -> bool:
        """Whether the votes were too close to certify anything."""
        return self.predicted == ABSTAIN


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
        """A line: the answer, and to which input."""
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
    """Rounded down to four digits: a printed radius is certified, too."""
    if not answer.radius > 0:
        return "radius=0"
    digits = Context(prec=4, rounding=ROUND_DOWN).create_decimal_from_float(answer.radius)
    return f"radius={float(digits):g}"
