"""Masks on categories, with Gaussian noise on the numbers beside them: docs/proofs-hybrid.md has the theorem.

Every categorical value is replaced by a mask with probability β, each on its own. Both are drawn by one sampler: a
coordinate of whole steps with two thresholds, 0 and β·2⁵⁸, is 0 with probability β exactly, and else 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import PERTURBATIONS, Perturbation, TrainingTable
from smoothcert.perturb.columns import Columns
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.perturb.grid import (
    Grid,
    GridNoise,
    HeldCopies,
    NoisyCopies,
    Place,
    on_grid,
    steps_per_unit,
    steps_to_a_sigma,
)
from smoothcert.perturb.sampler import BITS, MOST_TABLES, CellSampler, Thresholds
from smoothcert.regions.changes import ChangeRegion, TableScales
from smoothcert.regions.geometry import length_up
from smoothcert.registry import unknown_name
from smoothcert.rounding import down, normal_quantile_down, normal_quantile_up, up

if TYPE_CHECKING:
    import torch

UNIT = 1 << 32
"""Probabilities of masks are multiples of 1/UNIT."""
MOST_CHANGES = 1 << 16
"""So many changed values are asked about, at most."""
ESTIMATOR_ATTRIBUTE = "smoothcert_noise_"
"""Where a fitted estimator says what it was trained for."""

_BETA = 0.85
_NORMAL_ERROR = 1e-13  # relative, of the normal distribution function in its tails
_HALVINGS = 60


def mask_probability(beta: float) -> float:
    """β as the nearest multiple of 2⁻³²; refused unless it lies between 0 and 1."""
    if not (isinstance(beta, int | float | np.floating) and 0 < beta < 1):
        raise InvalidValueError(f"beta, the probability of a mask, must lie between 0 and 1, got {beta!r}")
    return min(max(1, round(float(beta) * UNIT)), UNIT - 1) / UNIT


@lru_cache(maxsize=4096)
def shared_mass(beta: float, changes: int) -> float:
    """v = β^d, rounded down: with so much probability all of the changed values are masked."""
    exact = Fraction(beta) ** changes if changes * 32 < 1 << 12 else None
    if exact is not None:
        return max(0.0, down(float(exact), 0.0)) if changes > 1 else float(exact)
    return max(0.0, down(math.exp(changes * math.log(beta)), 1e-12))


@dataclass(frozen=True)
class MaskTheorem:
    """If d categories change and ‖δ ⊘ σ‖₂ < ρ(d), the class is the same.

    Let v = β^d, L ≤ p_A and U ≥ p_B. Given that all changed values are masked, A has at least a = (L − 1 + v)/v and B
    at most b = min(1, U/v) of the votes, and ρ(d) solves v·(Φ(Φ⁻¹(a) − ρ) − Φ(Φ⁻¹(b) + ρ)) = 1 − v. ρ(0) is the
    Gaussian theorem's.
    """

    beta: float
    most: int
    """Categories that there are to change."""
    scales: TableScales | None = None
    """What regions have in common; None where all values are categories."""

    @property
    def norm(self) -> str:
        """Numbers move in units of their σ; without numbers, a radius is the first number of changes too many."""
        return "l0" if self.scales is None else "l2/sigma"

    @property
    def ball(self) -> bool:
        """Tables over d have no volume: the radius that runs keep is ρ(0)."""
        return True

    def holds(self, bounds: ClassBounds, changes: int, rho: float) -> bool:
        """True only if the class certainly is the same after so many changes and a shift of ``rho``."""
        v = shared_mass(self.beta, changes)
        if not bounds.separated or not v > 0:
            return False
        missing = up(1.0 - v, 0.0)
        ahead = down(down(bounds.lower - missing, 0.0) / v, 0.0)
        behind = min(1.0, up(bounds.upper / v, 0.0))
        if not 0 < ahead < 1 or not behind < 1:
            return False
        if rho == 0:
            return down(ahead - behind, 0.0) > up(missing / v, 0.0)
        kept = _below_down(down(normal_quantile_down(ahead) - rho, 0.0))
        gained = _below_up(up(_quantile_up(behind) + rho, 0.0))
        return down(kept - gained, 0.0) > up(missing / v, 0.0)

    def rho(self, bounds: ClassBounds, changes: int) -> float:
        """ρ(d), rounded down; 0 where nothing is certified after so many changes."""
        if not bounds.separated:
            return 0.0
        if changes == 0:
            gap = (normal_quantile_down(bounds.lower) - _quantile_up(bounds.upper)) / 2
            return max(0.0, down(gap))
        if not self.holds(bounds, changes, 0.0):
            return 0.0
        low, high = 0.0, self.rho(bounds, 0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self.holds(bounds, changes, middle):
                low = middle
            else:
                high = middle
        return low

    def changes(self, bounds: ClassBounds) -> int:
        """The most changes after which the class certainly is the same, where no number moves; −1 if none is certain.

        What holds after d changes holds after fewer.
        """
        if not bounds.separated:
            return -1
        low, high = 0, min(self.most, MOST_CHANGES) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(bounds, middle, 0.0) else (low, middle)
        return low

    def table(self, bounds: ClassBounds) -> tuple[float, ...]:
        """ρ(0), ρ(1), … as long as they are above 0; infinite where there are no numbers to move."""
        most = self.changes(bounds)
        if self.scales is None:
            return (math.inf,) * (most + 1)
        found: list[float] = []
        for changes in range(most + 1):
            if not (rho := self.rho(bounds, changes)) > 0:
                break
            found.append(min(rho, *found[-1:]) if found else rho)
        return tuple(found)

    def radius(self, bounds: ClassBounds) -> float:
        """ρ(0), in units of σ; without numbers one more than the changes that are certified."""
        return float(self.changes(bounds) + 1) if self.scales is None else self.rho(bounds, 0)

    def region(self, center: ArrayLike, bounds: ClassBounds) -> ChangeRegion | None:
        """All points with at most d changed categories, and numbers that moved by less than ρ(d), for any d."""
        if not (table := self.table(bounds)):
            return None
        return ChangeRegion(np.asarray(center, dtype=np.float64), table, self.scales)


def _below_down(x: float) -> float:
    """A lower bound of Φ(x)."""
    from scipy.special import ndtr

    return max(0.0, down(float(ndtr(x)), _NORMAL_ERROR))


def _below_up(x: float) -> float:
    """An upper bound of Φ(x)."""
    from scipy.special import ndtr

    return up(float(ndtr(x)), _NORMAL_ERROR)


def _quantile_up(p: float) -> float:
    """An upper bound of Φ⁻¹(p), finite for p = 0 as well."""
    return normal_quantile_up(max(p, 1e-300))


def _mask_table(beta: float) -> Thresholds:
    """Of a coordinate that is 0 with probability β, and else 1."""
    return np.array([0, int(Fraction(beta) * (1 << BITS))], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class _Cells:
    """What copies ask of a noise on a grid: its sampler, and what whole numbers of steps are divided by."""

    sampler: CellSampler
    steps_per_unit: NDArray[np.float64]

    def divisor(self, dtype: torch.dtype) -> torch.Tensor:
        """1 for categories."""
        import torch

        return torch.from_numpy(self.steps_per_unit).to(dtype)


@dataclass(frozen=True, eq=False)
class MaskedCopies(HeldCopies):
    """Copies whose categorical values are either those of ``row`` or masks; ``free`` are the places of the numbers.

    ``copies`` draws whole rows in which a category is 0, for a mask, or 1.
    """

    mask: float = math.nan
    made_of: tuple[Any, ...] = ()
    """The perturbation, the grid, and numbers: what another process makes them of."""

    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        """Draw whole rows, and put values or masks in the places of the categories."""
        flat = out.view(len(out), -1)
        self.copies.draw(flat, bits)
        flat.copy_(self.whole(flat))

    def whole(self, drawn: torch.Tensor) -> torch.Tensor:
        """Drawn rows with values or masks in the places of the categories."""
        import torch

        row = self.row.to(drawn.dtype)
        shown = torch.where(drawn == 0, row.new_tensor(self.mask), row)
        if not len(self.free):
            return shown
        return shown.index_copy(1, self.free, drawn.index_select(1, self.free))

    def __reduce__(self) -> Any:
        return _copies, self.made_of


def _copies(
    noise: Hybrid | Masks, grid: Grid, steps: NDArray[np.floating], row: NDArray[np.floating]
) -> MaskedCopies:
    """Of the steps of numbers, 0 in the places of categories, and the whole row."""
    import torch

    drawn = NoisyCopies(cast(GridNoise, noise.cells(grid, row.size)), torch.from_numpy(np.array(steps)))
    free = torch.from_numpy(np.array(noise.free, dtype=np.int64))
    return MaskedCopies(drawn, torch.from_numpy(np.array(row)), free, noise.mask, (noise, grid, steps, row))


@PERTURBATIONS.register("masks")
@dataclass(frozen=True)
class Masks(Perturbation):
    """Every value of an input is replaced by ``mask`` with probability ``beta``: of bytes, tokens, categories by code.

    A radius is the smallest number of changed values that isn't certified: the class holds for any fewer.
    """

    name: ClassVar[str] = "masks"
    norm: ClassVar[str] = "l0"
    free: ClassVar[tuple[int, ...]] = ()
    beta: float
    """A multiple of 2⁻³²."""
    mask: float
    """A code that no value has."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", mask_probability(self.beta))
        if not math.isnan(self.mask) and not float(self.mask).is_integer():
            raise InvalidValueError(
                f"mask, a code that no value has, must be a whole number or NaN, got {self.mask!r}"
            )
        object.__setattr__(self, "mask", float(self.mask))

    @property
    def sigma(self) -> float:
        """β, by which tables tell runs apart."""
        return self.beta

    def describe(self) -> dict[str, Any]:
        """Name, β and the mask."""
        mask = None if math.isnan(self.mask) else self.mask
        return {"noise": self.name, "sigma": self.beta, "beta": self.beta, "mask": mask}

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        """By β and the mask."""
        return cls(_stated_beta(plan), math.nan if plan["mask"] is None else float(plan["mask"]))

    @classmethod
    def asked(cls, options: Mapping[str, str], sigma: float | None, table: TrainingTable) -> Self:  # noqa: ARG003
        """``masks:beta=0.9,mask=256``; without a code, a mask is NaN."""
        if sigma is not None:
            raise InvalidValueError(f"masks have no sigma, got --sigma {sigma:g}: give masks:beta={sigma:g}")
        check_options(cls.name, options, ("beta", "mask"))
        if "beta" not in options:
            raise InvalidValueError("masks need a beta, the probability of a mask: masks:beta=0.9")
        return cls(number_in(options, "beta"), number_in(options, "mask", math.nan))

    def spelled(self) -> str:
        """β and the mask."""
        return f"masks:beta={self.beta!r}" + ("" if math.isnan(self.mask) else f",mask={self.mask:g}")

    def in_words(self) -> str:
        """The mask, and how likely it is."""
        return f"each value is masked (as {self.mask:g}) with probability {self.beta:g}"

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    @property
    def certificate(self) -> MaskTheorem:
        """Of numbers of changes alone."""
        return MaskTheorem(self.beta, MOST_CHANGES)

    @lru_cache(maxsize=8)  # noqa: B019  (perturbations are small values, and few)
    def cells(self, grid: Grid, size: int) -> _Cells:  # noqa: ARG002
        """One table for all values."""
        return _Cells(CellSampler([_mask_table(self.beta)]), np.ones(1))

    def copies(self, x: NDArray[Any], grid: Grid, dtype: str, index: int) -> MaskedCopies:
        """Values or masks."""
        row = _whole_numbers(x, dtype, f"input {index}").reshape(-1)
        if (row == self.mask).any():
            raise InvalidValueError(
                f"input {index} holds {self.mask:g}, which is the mask: give the mask another code"
            )
        return _copies(self, grid, np.zeros(row.size, dtype), row)

    def error(self, grid: Grid, dimension: int) -> float:  # noqa: ARG002
        """Nothing: masks are drawn exactly."""
        return 0.0


@PERTURBATIONS.register("hybrid")
@dataclass(frozen=True)
class Hybrid(Perturbation):
    """Rows of a table: each category is masked (NaN) with probability β, each number gets Gaussian noise of its own σ.

    A run's radius is ρ(0), how far the numbers may move in units of their σ where no category changes; the certificate
    is the table over d, the number of changed categories.
    """

    name: ClassVar[str] = "hybrid"
    norm: ClassVar[str] = "l2/sigma"
    mask: ClassVar[float] = math.nan
    columns: Columns
    """The table's."""
    sigmas: tuple[float, ...]
    """Standard deviations of the numeric columns in their order, in the columns' own units."""
    beta: float
    """A multiple of 2⁻³²."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", mask_probability(self.beta))
        object.__setattr__(self, "sigmas", tuple(float(sigma) for sigma in np.ravel(self.sigmas)))
        if not self.columns.categorical or not self.columns.numeric:
            lacking, other = (
                ("categorical", "DiagonalGaussian noise") if self.columns.numeric else ("numeric", "Masks")
            )
            raise InvalidValueError(
                f"hybrid noise is for tables of both kinds, and none of the columns is {lacking}: use {other}"
            )
        if len(self.sigmas) != len(self.columns.numeric):
            raise InvalidValueError(
                f"sigmas must have a number for each of {len(self.columns.numeric)} numeric columns, got "
                f"{len(self.sigmas)}"
            )
        self.numbers  # refuses scales that aren't positive  # noqa: B018

    @classmethod
    def of(
        cls,
        table: Any,
        sigma: float | Sequence[float] = 0.25,
        beta: float = _BETA,
        categorical: Sequence[str | int] | None = None,
        columns: Columns | None = None,
    ) -> Self:
        """For a DataFrame, or an array of rows whose ``categorical`` columns hold codes.

        ``sigma`` is in standard deviations of each numeric column of this table; a column that doesn't vary has 1.
        """
        columns = columns or Columns.infer(table, categorical)
        spread = columns.rows(table)[:, list(columns.numeric)].std(axis=0)
        return cls(
            columns, tuple(np.asarray(sigma, dtype=np.float64) * np.where(spread > 0, spread, 1.0)), beta
        )

    @classmethod
    def asked(cls, options: Mapping[str, str], sigma: float | None, table: TrainingTable) -> Self:
        """``hybrid:beta=0.85,age=5``: β, and σ of columns in their own units; others have ``sigma`` deviations."""
        if table.columns is None:
            raise InvalidValueError("hybrid noise is for tables: give csv:PATH or parquet:PATH as --dataset")
        columns = table.columns
        numbers = [columns.names[place] for place in columns.numeric]
        check_options(cls.name, options, ("beta", *numbers))
        missing = [name for name in numbers if name not in options]
        if missing and sigma is None:
            raise InvalidValueError(
                f"--sigma is missing: in standard deviations of each number, or hybrid:{missing[0]}=… in its own units"
            )
        made = cls.of(
            table.rows(), 1.0 if sigma is None else sigma, number_in(options, "beta", _BETA), columns=columns
        )
        own = (number_in(options, name, relative) for name, relative in zip(numbers, made.sigmas))
        return cls(columns, tuple(own), made.beta)

    def spelled(self) -> str:
        """β, and σ of every number in its own units, to the last bit."""
        numbers = zip((self.columns.names[place] for place in self.free), self.sigmas)
        sigmas = (f",{quote(name, safe=' ')}={sigma!r}" for name, sigma in numbers)
        return f"hybrid:beta={self.beta!r}{''.join(sigmas)}"

    def in_words(self) -> str:
        """σ of each number in its own units, and how likely masks are."""
        numbers = zip((self.columns.names[place] for place in self.free), self.sigmas)
        sigmas = ", ".join(f"{name} {sigma:.3g}" for name, sigma in numbers)
        masked = (
            f"each of {len(self.columns.categorical)} categories is masked with probability {self.beta:g}"
        )
        return f"σ of the numbers in their own units: {sigmas}; {masked}"

    def doubt(self, trained_for: Perturbation | None) -> str | None:
        """A model that has seen fewer masks, or doesn't say that it has seen any."""
        if not isinstance(trained_for, Hybrid):
            return (
                "the model doesn't say that it was trained with masks: one that never saw any certifies next to "
                f"nothing. Train it with smoothcert.fit_masked; if it was, set its {ESTIMATOR_ATTRIBUTE}"
            )
        if trained_for.beta < self.beta:
            return f"the model was trained with masks of probability {trained_for.beta:g}, and these have {self.beta:g}"
        return None

    @cached_property
    def numbers(self) -> DiagonalGaussian:
        """The noise of the numeric columns."""
        return DiagonalGaussian(np.array(self.sigmas))

    @property
    def free(self) -> tuple[int, ...]:
        """Places of the numeric columns."""
        return self.columns.numeric

    @property
    def sigma(self) -> float:
        """The geometric mean of the standard deviations, by which tables tell runs apart."""
        return self.numbers.sigma

    def describe(self) -> dict[str, Any]:
        """Everything, the categories of each column included."""
        return {
            "noise": self.name,
            "sigma": self.sigma,
            "beta": self.beta,
            "sigmas": list(self.sigmas),
            "columns": self.columns.as_json(),
        }

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        """By columns, σ and β."""
        return cls(Columns.from_json(plan["columns"]), tuple(map(float, plan["sigmas"])), _stated_beta(plan))

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse rows of another number of columns."""
        if tuple(input_shape) != (len(self.columns.names),):
            raise InvalidValueError(
                f"the noise is for rows of {len(self.columns.names)} columns, the inputs have shape "
                f"{tuple(input_shape)}"
            )

    def encoded(self, x: Any) -> Any:
        """DataFrames, rows by name, and arrays as rows of numbers."""
        tabular = isinstance(x, Mapping) or hasattr(x, "iloc")
        rows = isinstance(x, Sequence) and len(x) and isinstance(x[0], Mapping)
        return self.columns.rows(x) if tabular or rows else x

    def decoder(self) -> Any:
        """The DataFrame that a batch of rows stands for, for models that know their columns by name."""
        return self.columns.table

    @property
    def certificate(self) -> MaskTheorem:
        """The table over d."""
        scales = TableScales(self.columns.names, self.columns.categorical, self.sigmas)
        return MaskTheorem(self.beta, len(self.columns.categorical), scales)

    @lru_cache(maxsize=8)  # noqa: B019  (perturbations are small values, and few)
    def cells(self, grid: Grid, size: int) -> _Cells:
        """A table for each number of steps to a σ, and one for masks."""
        numbers = on_grid(self.numbers, grid, (len(self.free),))
        ratios, which = steps_to_a_sigma(self.numbers.sigmas, numbers.steps_per_unit)
        tables = [self.numbers.thresholds(ratio) for ratio in ratios]
        steps, places = np.ones(size), np.full(size, len(tables), dtype=np.intp)
        steps[list(self.free)], places[list(self.free)] = numbers.steps_per_unit, which
        return _Cells(CellSampler([*tables, _mask_table(self.beta)], places), steps)

    def copies(self, x: NDArray[Any], grid: Grid, dtype: str, index: int) -> MaskedCopies:
        """Whole steps of a grid added to numbers; categories or masks."""
        numbers, free = on_grid(self.numbers, grid, (len(self.free),)), list(self.free)
        point = numbers.point(x[free])
        numbers.check_exact(point, dtype, index)
        row, steps = np.zeros(x.size, dtype), np.zeros(x.size, dtype)
        for place in self.columns.categorical:
            row[place] = _whole_numbers(
                x[place], dtype, f"input {index}, column {self.columns.names[place]!r},"
            )
        steps[free] = point.steps
        return _copies(self, grid, steps, row)

    def error(self, grid: Grid, dimension: int) -> float:  # noqa: ARG002
        """That of the numbers: masks are drawn exactly."""
        return self.numbers.error(grid, len(self.sigmas))

    def place(self, x: ArrayLike, grid: Grid, radius: float) -> Place:
        """At the point of the grid next to the numbers; distances are in units of σ."""
        center, sigmas = np.array(x, dtype=np.float64), np.array(self.sigmas)
        numbers, free = on_grid(self.numbers, grid, sigmas.shape), list(self.free)
        point = numbers.point(center[free])
        moved = np.abs(center[free] - point.values)
        largest = np.abs(point.values) + radius * sigmas
        half = 0.5 / numbers.steps_per_unit + largest * 2.0**-51
        center[free] = point.values
        shift = 0.0 if point.shift == 0 else length_up("l2", moved / sigmas)
        far = length_up("l2", (moved + np.abs(point.values) * 2.0**-52) / sigmas)
        return Place(center, shift, far + length_up("l2", half / sigmas))

    def lost_off_grid(self, grid: Grid, dimension: int, levels: int | None) -> float:  # noqa: ARG002
        """What a radius must give up to speak of rows themselves, in units of σ; rounded up."""
        sigmas = np.array(self.sigmas)
        steps = steps_per_unit(sigmas, grid)
        off = np.ones(steps.shape, bool) if levels is None else np.fmod(steps, levels) != 0
        return length_up("l2", np.where(off, 1 / (steps * sigmas), 0.0))

    def exact_type(self, grid: Grid, largest: float) -> str:
        """The smaller of float32 and float64 in which the noise can be added to such numbers exactly."""
        return self.numbers.exact_type(grid, largest)

    def drawable(self, grid: Grid) -> Self:
        """With scales a little smaller where they need more tables than a sampler has beside that of masks."""
        drawn = self.numbers.drawable(grid)
        sigmas, steps = drawn.sigmas.copy(), steps_per_unit(drawn.sigmas, grid)
        ratios, which = steps_to_a_sigma(sigmas, steps)
        if (
            len(ratios) == MOST_TABLES
        ):  # the finest joins the next: steps differ by powers of two, so it is exact
            like = int(np.flatnonzero(which == MOST_TABLES - 2)[0])
            finest = which == MOST_TABLES - 1
            sigmas[finest] = sigmas[like] * (steps[like] / steps[finest])
        elif drawn is self.numbers:
            return self
        return type(self)(self.columns, tuple(sigmas), self.beta)

    def sample(self, generator: np.random.Generator, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """A noisy, masked copy of each row, for training; votes are drawn by integer thresholds."""
        made = np.array(rows, dtype=np.float64)
        made[:, list(self.free)] += generator.normal(size=(len(made), len(self.free))) * self.sigmas
        for place in self.columns.categorical:
            made[generator.random(len(made)) < self.beta, place] = self.mask
        return made


def noise_of_estimator(estimator: object) -> Hybrid | None:
    """The noise that a fitted estimator says it was trained for; None where it says nothing."""
    found = getattr(estimator, ESTIMATOR_ATTRIBUTE, None)
    return found if isinstance(found, Hybrid) else None


def check_options(name: str, options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse an option that ``name`` doesn't have."""
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name}", option, list(known))


def number_in(options: Mapping[str, str], name: str, default: float = math.nan) -> float:
    """An option as a number."""
    try:
        return float(options.get(name, default))
    except ValueError:
        raise InvalidValueError(f"{name} must be a number, got {options[name]!r}") from None


def _stated_beta(plan: Mapping[str, Any]) -> float:
    beta = plan["beta"]
    if type(beta) is not float or mask_probability(beta) != beta:
        raise ValueError(f"beta = {beta!r}, which is not a multiple of 2^-32")
    return beta


def _whole_numbers(x: ArrayLike, dtype: str, which: str) -> NDArray[np.floating]:
    """Codes in this type, exactly."""
    exact = np.asarray(x, dtype=np.float64)
    codes = exact.astype(dtype)
    if not (np.equal(codes, exact) & np.equal(np.rint(exact), exact)).all():
        raise InvalidValueError(f"{which} must hold categories as whole numbers that {dtype} has")
    return codes + np.zeros((), dtype)  # equal codes are one row: −0 is 0
