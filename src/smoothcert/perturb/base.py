"""Perturbations: what is done to an input at random, how that is drawn from fair bits, and the theorem it comes with.

The engine and the plan know nothing else. Noise on real numbers is one kind: a distribution on the line, its theorem,
and a scale for all or for each coordinate. Another (masks on bytes, say) states a subclass of :class:`Perturbation` and
one of :class:`Copies`, and registers the first: plans, runs, resumption, reports and votes follow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import Bound, ClassBounds
from smoothcert.bounds.fixed import unanimous
from smoothcert.errors import InvalidValueError, check_positive
from smoothcert.perturb.grid import EXACT, Grid, NoisyCopies, Place, on_grid, steps_per_unit, steps_to_a_sigma
from smoothcert.perturb.grid import Copies as Copies
from smoothcert.perturb.sampler import BITS, Thresholds
from smoothcert.regions.bodies import BALLS, STRETCHED, CertifiedRegion
from smoothcert.regions.geometry import all_down, length_up
from smoothcert.registry import Registry
from smoothcert.rounding import down

if TYPE_CHECKING:
    import torch

    from smoothcert.perturb.columns import Columns


class Region(Protocol):
    """Everything that is certified around an input."""

    @property
    def volume_radius(self) -> float:
        """Radius of the ball of equal volume; asked only where the region isn't a ball."""

    def contains(self, point: ArrayLike) -> bool:
        """True only if the point is certified."""


class Theorem(Protocol):
    """What bounds of probabilities certify under a perturbation."""

    @property
    def norm(self) -> str:
        """In which radii are."""

    @property
    def ball(self) -> bool:
        """Whether the radius says all of a region."""

    def radius(self, bounds: ClassBounds) -> float:
        """The largest certified radius, rounded down; 0 when the bounds don't separate the classes."""

    def region(self, center: ArrayLike, bounds: ClassBounds) -> Any:
        """The :class:`Region` around ``center``, or None when there is nothing to certify."""


class TrainingTable(Protocol):
    """Rows that a model was trained on: what a σ may be relative to."""

    @property
    def columns(self) -> Columns | None:
        """Their names and categories, where they are a table's."""

    def rows(self) -> NDArray[Any]:
        """The rows themselves."""


class Perturbation(ABC):
    """A frozen description of a distribution on inputs. Equal ones have equal descriptions."""

    name: ClassVar[str]
    norm: ClassVar[str]

    if TYPE_CHECKING:  # a dataclass would take a property for its field's default

        @property
        def sigma(self) -> float:
            """What tables are indexed by: of noise its standard deviation."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a plan's JSON says of it: ``noise``, its name, ``sigma``, and whatever else :meth:`stated` needs."""

    @classmethod
    @abstractmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`describe`, from a run's plan."""

    @classmethod
    def asked(cls, options: Mapping[str, str], sigma: float | None, table: TrainingTable) -> Self:  # noqa: ARG003
        """What ``--noise NAME:OPTION=VALUE,…`` and ``--sigma`` ask for; ``table`` holds what σ may be relative to."""
        raise InvalidValueError(f"{cls.name} can't be named on a command line: give a plan in Python")

    def spelled(self) -> str | None:
        """The text that :meth:`asked` takes, without σ beside it; None where there is none."""
        return None

    def in_words(self) -> str | None:
        """What is done to inputs, where more is to be said than a σ in their units."""
        return None

    def doubt(self, trained_for: Perturbation | None) -> str | None:  # noqa: ARG002
        """Why a model that was trained for that, or doesn't say, may certify nothing; None where nothing is known."""
        return None

    @abstractmethod
    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape it can't be applied to."""

    @property
    @abstractmethod
    def certificate(self) -> Theorem:
        """Its theorem."""

    @abstractmethod
    def copies(self, x: NDArray[Any], grid: Grid, dtype: str, index: int) -> Copies:
        """What draws copies of an input in this type; refused where that can't be exact. ``index`` names the input."""

    @abstractmethod
    def error(self, grid: Grid, dimension: int) -> float:
        """A bound of the total variation distance between what is drawn and the law of the theorem, rounded up."""

    def place(self, x: ArrayLike, grid: Grid, radius: float) -> Place:  # noqa: ARG002
        """Where votes on an input are: at the input itself, unless there is a grid."""
        return Place(np.asarray(x, dtype=np.float64))

    def lost_off_grid(self, grid: Grid, dimension: int, levels: int | None) -> float:  # noqa: ARG002
        """What a radius must give up to speak of inputs themselves, where they may lie off the grid; rounded up."""
        return 0.0

    def exact_type(self, grid: Grid, largest: float) -> str:  # noqa: ARG002
        """The smaller of float32 and float64 that holds all copies of inputs up to ``largest``."""
        return "float32"

    def drawable(self, grid: Grid) -> Perturbation:  # noqa: ARG002
        """The perturbation itself, or the one next to it that can be drawn: certificates are about that."""
        return self

    def encoded(self, x: Any) -> Any:
        """Inputs of other kinds (tables) as arrays of numbers; arrays are what they are."""
        return x

    def decoder(self) -> Callable[[NDArray[Any]], Any] | None:
        """What makes tables of batches again, for models that know their columns by name; None where there are none."""
        return None


PERTURBATIONS: Registry[type[Perturbation]] = Registry("perturbation", __package__)
"""Those that aren't noise on real numbers."""


DEFAULT_NOISE = "gaussian"


class Noise(Perturbation):
    """Independent coordinates of one distribution that differ in scale alone.

    A kind of noise states the class variables and static methods below, for scale 1, in a file of its own: a class from
    which :class:`Isotropic` and :class:`~smoothcert.perturb.diagonal.DiagonalNoise` make a noise with one scale and one
    with many. Its theorem reads: if p_A ≥ ``lower`` and every other class has at most ``upper``, the answer is the same
    wherever ‖δ ⊘ σ‖ < ``semi_axis``·gap(lower, upper) in ``norm``.
    """

    kind: ClassVar[str]
    """Its name with one scale."""
    semi_axis: ClassVar[float]
    """The region's extent in units of σ where the gap is 1."""
    steep: ClassVar[bool]
    """Whether the gap grows without limit as p_A nears 1: searches and fits then keep estimates away from there."""
    reach: ClassVar[int] = 10
    """So many standard deviations hold all but 2⁻⁵⁹ of it."""
    stretched: ClassVar[bool]
    """Whether each coordinate has its own scale."""

    @staticmethod
    @abstractmethod
    def thresholds(rho: Fraction) -> Thresholds:
        """Where the cells of a grid with ρ steps to a standard deviation end, as multiples of 2⁻⁵⁸."""

    @staticmethod
    @abstractmethod
    def gap(lower: float, upper: float) -> float:
        """The theorem's gap for lower > upper, good to 1e-14 and not above the exact value by more."""

    @staticmethod
    @abstractmethod
    def soft_gap(first: Any, second: Any = None) -> Any:
        """The gap of estimates (numbers, arrays or tensors); without ``second`` all else is one rival."""

    @staticmethod
    @abstractmethod
    def fill(out: torch.Tensor, generator: torch.Generator) -> None:
        """Overwrite ``out`` with noise of standard deviation 1, for training; votes are drawn by thresholds."""

    @staticmethod
    @abstractmethod
    def sample(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Noise of standard deviation 1, for pictures of it."""

    @property
    @abstractmethod
    def smallest_sigma(self) -> float:
        """The smallest standard deviation."""

    @abstractmethod
    def scales(self) -> NDArray[np.float64]:
        """The standard deviations: one number for all coordinates, or one for each."""

    @property
    def certificate(self) -> Certificate:
        """‖δ ⊘ σ‖ < semi_axis·gap."""
        return Certificate(self)

    def copies(self, x: NDArray[Any], grid: Grid, dtype: str, index: int) -> Copies:
        """Whole steps of a grid, added exactly."""
        import torch

        placed = on_grid(self, grid, x.shape)
        point = placed.point(x)
        placed.check_exact(point, dtype, index)
        return NoisyCopies(placed, torch.from_numpy(point.steps).to(getattr(torch, dtype)))

    def error(self, grid: Grid, dimension: int) -> float:
        """A bound of the total variation distance between what is drawn and the true noise rounded to the grid.

        A coordinate's thresholds are off by half of 2⁻⁵⁸ each, and the tails beyond the last have less than 2⁻⁵⁹, so
        its distance is at most (cells + 2)·2⁻⁵⁸, with at most 2⌈reach·σ/s⌉ + 1 cells; distances of independent
        coordinates add up. No probability, and no mean of a number in [0, 1], differs by more. Rounded up.
        """
        return _error(self, grid, dimension)

    def place(self, x: ArrayLike, grid: Grid, radius: float) -> Place:
        """At the point of the grid next to the input."""
        return on_grid(self, grid, np.shape(x)).place(x, radius)

    def lost_off_grid(self, grid: Grid, dimension: int, levels: int | None) -> float:
        """What a radius must give up to speak of inputs themselves, where they may lie off the grid; rounded up.

        Half of it is an input's way to its grid point, half that of whatever it is compared with: the diagonal of a
        cell, over the coordinates in which multiples of 1/``levels`` aren't points of the grid (None: any numbers).
        Where a σ is many such multiples the grid is coarser than they are.
        """
        steps = steps_per_unit(self.scales(), grid)
        off = np.ones(steps.shape, bool) if levels is None else np.fmod(steps, levels) != 0
        cells = np.where(off, 1 / steps, 0.0)
        return length_up(self.norm, cells, dimension if cells.size == 1 else 1)

    def exact_type(self, grid: Grid, largest: float) -> str:
        """The smaller of float32 and float64 in which the noise can be added to such numbers exactly."""
        steps = float(steps_per_unit(self.scales(), grid).max())
        # Python's floats: infinite, not an error, where it is too far.
        farthest = largest + self.reach * float(self.scales().max())
        return "float32" if farthest * steps <= EXACT["float32"] else "float64"

    def semi_axes(self) -> NDArray[np.float64]:
        """The region's semi-axes where the gap is 1."""
        return np.asarray(self.scales() * self.semi_axis)


@dataclass(frozen=True)
class Certificate:
    """If the bounds are true, the smoothed classifier answers the same wherever ‖δ ⊘ semi-axes‖ < gap(p_A, p_B).

    Semi-axes, gap and norm are the noise's. A constant scale vector gives exactly the ball's radius.
    """

    noise: Noise

    @property
    def norm(self) -> str:
        """Of the region: l1 or l2."""
        return self.noise.norm

    @property
    def ball(self) -> bool:
        """Whether the region is a ball, so that its radius says it all."""
        return not self.noise.stretched

    def radius(self, bounds: ClassBounds) -> float:
        """Radius of the largest certified ball, rounded down; 0 when the bounds don't separate the classes."""
        return max(0.0, down(self.noise.smallest_sigma * self.noise.semi_axis * self._gap(bounds)))

    def region(self, center: ArrayLike, bounds: ClassBounds) -> CertifiedRegion | None:
        """The open region around ``center``, or None when there is nothing to certify."""
        radius, point = self.radius(bounds), np.asarray(center, dtype=np.float64)
        if not radius > 0:
            return None
        if self.ball:
            return BALLS[self.norm](point, radius)
        return STRETCHED[self.norm](point, all_down(self.noise.semi_axes() * self._gap(bounds)))

    def _gap(self, bounds: ClassBounds) -> float:
        return self.noise.gap(bounds.lower, bounds.upper) if bounds.separated else 0.0


def real_noise(perturbation: Perturbation, purpose: str) -> Noise:
    """The perturbation, if it is noise on real numbers: whatever ``purpose`` says is about these alone."""
    if isinstance(perturbation, Noise):
        return perturbation
    raise InvalidValueError(f"{purpose} needs noise on real numbers, got {perturbation.name}")


@dataclass(frozen=True)
class Isotropic(Noise):
    """Standard deviation ``sigma`` in every coordinate, for inputs of any shape."""

    words: ClassVar[str]
    """What help says of it."""
    stretched: ClassVar[bool] = False
    sigma: float
    """The standard deviation, in the units of the inputs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))

    @property
    def smallest_sigma(self) -> float:
        """σ."""
        return self.sigma

    def describe(self) -> dict[str, Any]:
        """Name and σ."""
        return {"noise": self.name, "sigma": self.sigma}

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        """By its σ."""
        return cls(plan["sigma"])

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    def scales(self) -> NDArray[np.float64]:
        """σ."""
        return np.array(self.sigma, dtype=np.float64)


NOISES: Registry[type[Isotropic]] = Registry("noise", __package__)
"""Noises with one scale for all coordinates."""


def largest_radius(noise: Perturbation, bound: Bound, n: int, alpha: float) -> float:
    """The ceiling that n and α impose: the radius of a unanimous vote (for the papers' bound σΦ⁻¹(α^{1/n})).

    A bound with looks has its ceiling at the last of them up to n.
    """
    votes = unanimous(bound.last_look(n), 2, bound.votes)
    return noise.certificate.radius(bound(votes, 0, alpha))


@lru_cache(maxsize=256)
def _error(noise: Noise, grid: Grid, dimension: int) -> float:
    scales = noise.scales()
    ratios, which = steps_to_a_sigma(scales, steps_per_unit(scales, grid))
    cells = [2 * math.ceil(noise.reach * ratio) + 3 for ratio in ratios]
    total = (
        dimension * cells[0]
        if scales.size == 1
        else sum(int(n) * c for n, c in zip(np.bincount(which.ravel()), cells))
    )
    return math.nextafter(math.ldexp(float(total), -BITS), math.inf)
