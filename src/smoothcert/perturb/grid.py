"""Noise on a grid: what makes a certificate true for the arithmetic that ran (Voráček & Hein 2023).

Let Q round to the nearest multiple of a step s. If x is a multiple of s, then Q(x + ε) = x + Q(ε): the classifier f∘Q
under *real* noise, which is what the theorems speak of, is sampled exactly by adding whole numbers of steps. A
machine's own x + ε rounds in a way that depends on x, and a classifier that reads low-order bits sees it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.perturb.sampler import CellSampler, Floats, Thresholds
from smoothcert.regions.geometry import length_up

if TYPE_CHECKING:
    import torch

    from smoothcert.perturb.base import Noise

PICTURE_LEVELS = 255
"""8-bit pictures are multiples of 1/255."""

# Fewest steps to a σ: where the inputs lie on the grid, and where they are rounded to it.
_COARSE, _FINE = 64, 256
_MOST_CELLS = 2048  # steps to a σ beyond which the grid gets coarser than the inputs' own
_MOST_LEVELS = 1 << 24  # what float32 holds exactly
_UNIT_STEPS = 512
_LAST_PLACE = 2.0**-52

EXACT = {"float32": 1 << 24, "float64": 1 << 53}
"""Whole numbers up to here are exact, and so are their sums."""


@dataclass(frozen=True)
class Grid:
    """Which multiples: of 1/levels, halved until a σ has at least ``cells`` steps (not at all where it has them).

    Inputs that are multiples of 1/levels are points of the grid as long as levels·σ ≤ 2048.
    """

    levels: int
    cells: int

    def __post_init__(self) -> None:
        check_count("levels", self.levels)
        if self.levels > _MOST_LEVELS:
            raise InvalidValueError(f"levels must be at most {_MOST_LEVELS}, got {self.levels}")

    @classmethod
    def of(cls, levels: int | None) -> Grid:
        """For inputs that are multiples of 1/levels; None: for any numbers, which are rounded to a finer grid.

        The finer grid is a grid of pictures as well.
        """
        return cls(PICTURE_LEVELS, _FINE) if levels is None else cls(levels, _COARSE)

    def steps_per_unit(self, sigma: float) -> float:
        """1/step for noise of this σ: levels times a power of two, exactly."""
        share = Fraction(sigma) * self.levels
        log_share = math.log2(share.numerator) - math.log2(share.denominator)
        doublings = math.ceil(math.log2(self.cells) - log_share)
        while share * Fraction(2) ** doublings < self.cells:
            doublings += 1
        while share * Fraction(2) ** (doublings - 1) >= self.cells:
            doublings -= 1
        if share <= _MOST_CELLS:
            doublings = max(0, doublings)
        try:
            return math.ldexp(float(self.levels), doublings)
        except OverflowError:
            raise InvalidValueError(f"sigma {sigma:g} is too small for a grid: rescale the inputs") from None


@dataclass(frozen=True)
class GridPoint:
    """The point of a grid next to an input: whole numbers of steps in each coordinate, and where that is.

    ``distance`` bounds the input's distance from it in the noise's norm. ``shift`` is that, but 0 where they are the
    same to the precision of an own type that is finer than the grid: 128/255 in float32 *is* the picture's 128.
    """

    steps: NDArray[np.float64]
    values: NDArray[np.float64]
    shift: float
    distance: float


@dataclass(frozen=True)
class Place:
    """Where votes on an input are: the point that they are about, and how far that is from the input."""

    center: NDArray[np.float64]
    shift: float = 0.0
    """The input's distance from the point; 0 where they are the same to the input's own precision."""
    between: float = 0.0
    """How much closer than the region's edge *any* input must be, for its own point to lie in the region."""


@dataclass(frozen=True, eq=False)
class GridNoise:
    """A noise rounded to a grid, for inputs of one shape: what is drawn, and how far that is from the true noise."""

    noise: Noise
    grid: Grid
    shape: tuple[int, ...]

    @cached_property
    def steps_per_unit(self) -> NDArray[np.float64]:
        """1/step: one number, or one for each coordinate."""
        return steps_per_unit(self.noise.scales(), self.grid)

    @cached_property
    def sampler(self) -> CellSampler:
        """Draws it."""
        ratios, which = steps_to_a_sigma(self.noise.scales(), self.steps_per_unit)
        tables = [_thresholds(type(self.noise), ratio) for ratio in ratios]
        return CellSampler(tables, which if len(tables) > 1 else None)

    def point(self, x: ArrayLike) -> GridPoint:
        """The grid point nearest to an input."""
        given = np.asarray(x)
        exact = given.astype(np.float64)
        steps = np.rint(exact * self.steps_per_unit)
        values = steps / self.steps_per_unit
        # 64-bit integers and long doubles are rounded by float64: how far is part of the distance.
        moved = np.abs(given.astype(np.longdouble) - values).astype(np.float64)
        same = moved * self.steps_per_unit <= same_to_precision(given, self.steps_per_unit)
        # The grid point itself is a multiple of the step, which its value approximates to half a last place.
        far = moved + np.abs(values) * _LAST_PLACE
        norm = self.noise.norm
        return GridPoint(steps, values, length_up(norm, np.where(same, 0.0, moved)), length_up(norm, far))

    def place(self, x: ArrayLike, radius: float) -> Place:
        """Where votes on an input are, and what a certified radius leaves of inputs between grid points."""
        point = self.point(x)
        between = point.distance + self.half_diagonal(np.abs(point.values) + radius)
        return Place(point.values, point.shift, between)

    def half_diagonal(self, largest: NDArray[np.float64] | float = 0.0) -> float:
        """How far any input can be from the grid point nearest to it; ``largest``: the most that its numbers can be.

        The nearest is found in float64. Of many steps it may be another one by what the product, the input's own number
        and the point's value are rounded.
        """
        half = 0.5 / self.steps_per_unit + 2 * _LAST_PLACE * np.abs(largest)
        return length_up(self.noise.norm, np.broadcast_to(half, self.shape))

    def check_exact(self, point: GridPoint, dtype: str, index: int) -> None:
        """Refuse an input whose noisy copies ``dtype`` can't hold as whole numbers of steps, exactly."""
        largest = float(np.abs(point.steps).max(initial=0.0)) + self.sampler.reach
        if not largest <= EXACT[dtype]:
            other = (
                "use float64 (--dtype float64), or subtract an offset and rescale the inputs"
                if dtype == "float32"
                else "subtract an offset and rescale the inputs"
            )
            raise InvalidValueError(
                f"input {index} reaches {np.abs(point.values).max():g}, sigma is {self.noise.sigma:g}: their sum isn't "
                f"exact in {dtype} ({largest:.3g} steps of the noise's grid, {EXACT[dtype]} at most); {other}"
            )
        limits = np.finfo(dtype)
        fewest, most = float(self.steps_per_unit.min()), float(self.steps_per_unit.max())
        if largest / fewest > float(limits.max) / 2 or 1 / most < float(limits.tiny):
            raise InvalidValueError(
                f"noise of sigma {self.noise.sigma:g} is out of range for {dtype}: rescale the inputs"
            )

    def divisor(self, dtype: torch.dtype) -> torch.Tensor:
        """What whole numbers of steps are divided by, the same way at every point: a part of the classifier."""
        import torch

        return torch.from_numpy(np.array(self.steps_per_unit)).to(dtype)


def same_to_precision(values: NDArray[Any], steps_per_unit: ArrayLike) -> NDArray[np.float64]:
    """How many steps a number may be off a grid point and be that point, as its own type writes it: two last places.

    None where the type is too coarse to tell, having fewer than eight numbers to a step.
    """
    if values.dtype.kind != "f":
        return np.zeros(values.shape)
    last_places = np.spacing(np.abs(values)).astype(np.float64) * steps_per_unit
    return np.where(last_places <= 1 / 8, 2 * last_places, 0.0)


@lru_cache(maxsize=64)
def on_grid(noise: Noise, grid: Grid, shape: tuple[int, ...]) -> GridNoise:
    """The noise on a grid, its tables made once."""
    noise.check_shape(shape)
    return GridNoise(noise, grid, shape)


@lru_cache(maxsize=8)
def _unit_sampler(kind: type[Noise]) -> CellSampler:
    return CellSampler([_thresholds(kind, Fraction(_UNIT_STEPS))])


def draw_unit(kind: type[Noise], out: Floats, bits: np.random.BitGenerator) -> None:
    """Noise of this kind with standard deviation 1, in steps of 1/512: for searches, fits and pictures."""
    _unit_sampler(kind).draw(out, bits)
    out /= _UNIT_STEPS


@lru_cache(maxsize=1024)
def _thresholds(kind: type[Noise], ratio: Fraction) -> Thresholds:
    return kind.thresholds(ratio)


def steps_per_unit(scales: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """1/step for each of these σ."""
    values, places = np.unique(scales, return_inverse=True)
    steps = np.array([grid.steps_per_unit(float(sigma)) for sigma in values])
    return np.asarray(steps[places.reshape(scales.shape)])


def steps_to_a_sigma(
    scales: NDArray[np.float64], steps: NDArray[np.float64]
) -> tuple[list[Fraction], NDArray[np.intp]]:
    """The different numbers of steps to a σ, and which of them each coordinate has."""
    pairs, places = np.unique(np.stack([scales.ravel(), steps.ravel()], axis=1), axis=0, return_inverse=True)
    exact = [Fraction(float(sigma)) * Fraction(float(step)) for sigma, step in pairs]
    ordered = sorted(set(exact))
    place_of = {ratio: place for place, ratio in enumerate(ordered)}
    which = np.array([place_of[ratio] for ratio in exact], dtype=np.intp)[places.ravel()]
    return ordered, which.reshape(scales.shape)


class Copies(ABC):
    """Perturbed copies of one input, drawn from fair bits. They are sent to other processes by pickle."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many random numbers a copy takes."""

    @abstractmethod
    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        """Overwrite every row of ``out`` with a copy."""


@dataclass(frozen=True, eq=False)
class NoisyCopies(Copies):
    """Noisy copies of an input: (``steps`` + whole numbers of steps drawn from the noise) / ``divisor``.

    Sent to another process, they are the noise and a grid point, some kilobytes: tables are made where the model is.
    """

    noise: GridNoise
    steps: torch.Tensor

    @property
    def dimension(self) -> int:
        """All of them."""
        return self.steps.numel()

    @cached_property
    def divisor(self) -> torch.Tensor:
        """In the type of the steps."""
        return self.noise.divisor(self.steps.dtype)

    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        """Overwrite ``out``: sums of whole numbers are exact, and dividing them is a part of the classifier."""
        self.noise.sampler.draw(out.numpy(), bits)
        out.add_(self.steps).div_(self.divisor)

    def __reduce__(self) -> Any:
        return _arrived, (self.noise.noise, self.noise.grid, self.steps.numpy())


def _arrived(noise: Noise, grid: Grid, steps: NDArray[np.floating]) -> NoisyCopies:
    import torch

    return NoisyCopies(on_grid(noise, grid, steps.shape), torch.from_numpy(np.array(steps)))


@dataclass(frozen=True, eq=False)
class HeldCopies(Copies):
    """Copies of some coordinates of an input; the others have no noise, and the same values in every copy."""

    copies: Copies
    row: torch.Tensor
    """A whole row, flat, with the values that are held."""
    free: torch.Tensor
    """The places of the coordinates that aren't."""

    @property
    def dimension(self) -> int:
        """Of the coordinates that aren't held."""
        return self.copies.dimension

    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        """Draw the others, and put them in their places."""
        drawn = out.new_empty((len(out), len(self.free)))
        self.copies.draw(drawn, bits)
        out.copy_(self.whole(drawn).view(out.shape))

    def whole(self, drawn: torch.Tensor) -> torch.Tensor:
        """Rows with these numbers in the places that aren't held."""
        return self.row.to(drawn.dtype).expand(len(drawn), -1).index_copy(1, self.free, drawn)
