"""Noise on a grid: what makes a certificate true for the arithmetic that ran (Voráček & Hein 2023).

Let Q round to the nearest multiple of a step s. If x is a multiple of s, then Q(x + ε) = x + Q(ε): the classifier f∘Q
under *real* noise, which is what the theorems speak of, is sampled exactly by adding whole numbers of steps. A
machine's own x + ε rounds in a way that depends on x, and a classifier that reads low-order bits sees it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.noise.base import Noise
from smoothcert.noise.diagonal import DiagonalNoise
from smoothcert.noise.sampler import MOST_TABLES, CellSampler, Floats
from smoothcert.noise.thresholds import BITS, Thresholds

if TYPE_CHECKING:
    import torch

PICTURE_LEVELS = 255
"""8-bit pictures are multiples of 1/255."""

# Fewest steps to a σ: where the inputs lie on the grid, and where they are rounded to it.
_COARSE, _FINE = 64, 256
_MOST_CELLS = 2048  # steps to a σ beyond which the grid gets coarser than the inputs' own
_MOST_LEVELS = 1 << 24  # what float32 holds exactly
_UNIT_STEPS = 512
_LAST_PLACE = 2.0**-52

_EXACT = {"float32": 1 << 24, "float64": 1 << 53}  # whole numbers up to here are exact, and so are their sums


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

        The finer grid is a grid of pictures, too.
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

    ``distance`` bounds the input's distance from it in ℓ1 and ℓ2. ``shift`` is that, but 0 where they are the same to
    the precision of an own type that is finer than the grid: 128/255 in float32 *is* the picture's 128.
    """

    steps: NDArray[np.float64]
    values: NDArray[np.float64]
    shift: dict[str, float]
    distance: dict[str, float]


@dataclass(frozen=True, eq=False)
class GridNoise:
    """A noise rounded to a grid, for inputs of one shape: what is drawn, and how far that is from the true noise."""

    noise: Noise
    grid: Grid
    shape: tuple[int, ...]

    @cached_property
    def steps_per_unit(self) -> NDArray[np.float64]:
        """1/step: one number, or one for each coordinate."""
        return _steps_per_unit(self.noise.scales(), self.grid)

    @cached_property
    def sampler(self) -> CellSampler:
        """Draws it."""
        ratios, which = _ratios(self.noise.scales(), self.steps_per_unit)
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
        return GridPoint(steps, values, _lengths(np.where(same, 0.0, moved)), _lengths(far))

    def half_diagonal(self, norm: str, largest: NDArray[np.float64] | float = 0.0) -> float:
        """How far any input can be from the grid point nearest to it; ``largest``: the most that its numbers can be.

        The nearest is found in float64. Of many steps it may be another one by what the product, the input's own number
        and the point's value are rounded.
        """
        half = np.broadcast_to(0.5 / self.steps_per_unit + 2 * _LAST_PLACE * np.abs(largest), self.shape)
        found = float(half.sum()) if norm == "l1" else float(np.sqrt((half * half).sum()))
        return found * (1 + 1e-9)

    def check_exact(self, point: GridPoint, dtype: str, index: int) -> None:
        """Refuse an input whose noisy copies ``dtype`` can't hold as whole numbers of steps, exactly."""
        largest = float(np.abs(point.steps).max(initial=0.0)) + self.sampler.reach
        if not largest <= _EXACT[dtype]:
            other = (
                "use float64 (--dtype float64), or subtract an offset and rescale the inputs"
                if dtype == "float32"
                else "subtract an offset and rescale the inputs"
            )
            raise InvalidValueError(
                f"input {index} reaches {np.abs(point.values).max():g}, sigma is {self.noise.sigma:g}: their sum isn't "
                f"exact in {dtype} ({largest:.3g} steps of the noise's grid, {_EXACT[dtype]} at most); {other}"
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


def _lengths(moved: NDArray[np.float64]) -> dict[str, float]:
    l1, l2 = float(moved.sum()), float(np.sqrt((moved * moved).sum()))
    return {"l1": l1 * (1 + 1e-9), "l2": l2 * (1 + 1e-9)}


def sampler_error(noise: Noise, grid: Grid, dimension: int) -> float:
    """A bound of the total variation distance between what is drawn and the true noise rounded to the grid, rounded up.

    A coordinate's thresholds are off by half of 2⁻⁵⁸ each, and the tails beyond the last have less than 2⁻⁵⁹, so its
    distance is at most (cells + 2)·2⁻⁵⁸, with at most 2⌈reach·σ/s⌉ + 1 cells; distances of independent coordinates add
    up. No probability, and no mean of a number in [0, 1], differs by more.
    """
    scales = noise.scales()
    ratios, which = _ratios(scales, _steps_per_unit(scales, grid))
    cells = [2 * math.ceil(noise.reach * ratio) + 3 for ratio in ratios]
    total = (
        dimension * cells[0]
        if scales.size == 1
        else sum(int(n) * c for n, c in zip(np.bincount(which.ravel()), cells))
    )
    return math.nextafter(math.ldexp(float(total), -BITS), math.inf)


def lost_off_grid(noise: Noise, grid: Grid, dimension: int, levels: int | None) -> float:
    """What a radius must give up to speak of inputs themselves, where they may lie off the grid; rounded up.

    Half of it is an input's way to its grid point, half that of whatever it is compared with: the diagonal of a cell,
    over the coordinates in which multiples of 1/``levels`` aren't points of the grid (None: any numbers). Where a σ is
    many such multiples the grid is coarser than they are.
    """
    steps = _steps_per_unit(noise.scales(), grid)
    off = np.ones(steps.shape, bool) if levels is None else np.fmod(steps, levels) != 0
    cells = np.where(off, 1 / steps, 0.0)
    times = dimension if cells.size == 1 else 1
    lengths = times * cells.sum(), math.sqrt(times * (cells * cells).sum())
    return float(lengths[0] if noise.norm == "l1" else lengths[1]) * (1 + 1e-9)


def exact_type(noise: Noise, grid: Grid, largest: float) -> str:
    """The smaller of float32 and float64 in which noise can be added to numbers up to ``largest`` exactly."""
    steps = float(_steps_per_unit(noise.scales(), grid).max())
    # Python's floats: infinite, not an error, where it is too far.
    farthest = largest + noise.reach * float(noise.scales().max())
    return "float32" if farthest * steps <= _EXACT["float32"] else "float64"


def drawable(noise: Noise, grid: Grid) -> Noise:
    """The noise itself, or where its scales need more tables than a sampler has, one with scales a little smaller.

    Scales are rounded down to equal parts of an octave of steps. Certificates are then about the noise returned.
    """
    if not isinstance(noise, DiagonalNoise):
        return noise
    steps = _steps_per_unit(noise.sigmas, grid)
    if len(_ratios(noise.sigmas, steps)[0]) <= MOST_TABLES:
        return noise
    ratios = noise.sigmas * steps
    octaves = np.floor(np.log2(ratios / grid.cells)).clip(0)
    parts = MOST_TABLES // (int(octaves.max()) + 1)
    unit = grid.cells * 2.0**octaves
    rounded = unit * (1 + np.floor((ratios / unit - 1) * parts).clip(0, parts - 1) / parts)
    return type(noise)(rounded / steps)


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


def _steps_per_unit(scales: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    values, places = np.unique(scales, return_inverse=True)
    steps = np.array([grid.steps_per_unit(float(sigma)) for sigma in values])
    return np.asarray(steps[places.reshape(scales.shape)])


def _ratios(
    scales: NDArray[np.float64], steps: NDArray[np.float64]
) -> tuple[list[Fraction], NDArray[np.intp]]:
    """The different numbers of steps to a σ, and which of them each coordinate has."""
    pairs, places = np.unique(np.stack([scales.ravel(), steps.ravel()], axis=1), axis=0, return_inverse=True)
    exact = [Fraction(float(sigma)) * Fraction(float(step)) for sigma, step in pairs]
    ordered = sorted(set(exact))
    place_of = {ratio: place for place, ratio in enumerate(ordered)}
    which = np.array([place_of[ratio] for ratio in exact], dtype=np.intp)[places.ravel()]
    return ordered, which.reshape(scales.shape)
