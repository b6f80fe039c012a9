"""Regions of tables and of tokens: at most d changed categories, and numbers that moved by less than ρ(d)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.regions.geometry import difference, norm_error, stable_norm
from smoothcert.rounding import down, up

_SHOWN = 6
"""Columns that a sentence names before it says how many more there are."""


@dataclass(frozen=True)
class TableScales:
    """What the regions of one table have in common: its columns, which are categories, and σ of the others."""

    names: tuple[str, ...]
    categorical: tuple[int, ...]
    """Places of the categorical columns."""
    sigmas: tuple[float, ...]
    """Of the others, in their order."""

    @property
    def numeric(self) -> tuple[int, ...]:
        """Places of the others."""
        return tuple(place for place in range(len(self.names)) if place not in self.categorical)

    def budgets(self, rho: float) -> dict[str, float]:
        """How far each number alone may move, in its own units, where ‖δ ⊘ σ‖₂ may be ``rho``; rounded down."""
        numbers = zip(self.numeric, self.sigmas)
        return {self.names[place]: max(0.0, down(rho * sigma)) for place, sigma in numbers}

    def sentence(self, changes: int, rho: float) -> str:
        """What may happen to a row without another answer."""
        parts = []
        if changes:
            named = [self.names[place] for place in self.categorical]
            parts.append(
                f"change any {changes} of {_listed(named)}"
                if changes < len(named)
                else "change all categories"
            )
        moves = [f"{name} by up to {_cut(most)}" for name, most in self.budgets(rho).items()]
        together = "" if len(moves) == 1 else f" (one of them alone; together ‖δ ⊘ σ‖₂ < {_cut(rho)})"
        parts.append(f"move {_listed(moves, 'or')}{together}")
        return f"may {' and '.join(parts)}"


@dataclass(frozen=True, eq=False)
class ChangeRegion:
    """The union over d of all points with at most d changed categories and ‖δ ⊘ σ‖₂ < ρ(d) elsewhere.

    ``table`` holds ρ(0), ρ(1), …, which don't grow. Without ``scales`` all values are categories, and ρ is infinite.
    """

    center: NDArray[np.float64]
    table: tuple[float, ...]
    scales: TableScales | None = None

    @property
    def most_changes(self) -> int:
        """The most categories that may change, if no number moves."""
        return len(self.table) - 1

    @property
    def volume_radius(self) -> float:
        """ρ(0): these regions have no volume."""
        return self.table[0]

    def contains(self, point: ArrayLike) -> bool:
        """True only if ``point`` is certainly inside; rows that hold a NaN never are."""
        offset = difference(point, self.center)
        if not np.isfinite(offset).all():
            return False
        if self.scales is None:
            return int(np.count_nonzero(offset)) <= self.most_changes
        changed = int(np.count_nonzero(offset[list(self.scales.categorical)]))
        if changed > self.most_changes:
            return False
        moved = offset[list(self.scales.numeric)] / np.array(self.scales.sigmas)
        return up(stable_norm(moved, 2), norm_error(moved.size)) < self.table[changed]

    def rows(self) -> Iterator[dict[str, object]]:
        """The table over d: ρ(d), what each number alone may move by in its own units, and a sentence."""
        for changes, rho in enumerate(self.table):
            if self.scales is None:
                yield {
                    "changes": changes,
                    "sentence": f"may change any {changes} of {self.center.size} values",
                }
            else:
                yield {
                    "changes": changes,
                    "rho": rho,
                    "budgets": self.scales.budgets(rho),
                    "sentence": self.scales.sentence(changes, rho),
                }

    def __repr__(self) -> str:
        if self.scales is None:
            return f"ChangeRegion(up to {self.most_changes} of {self.center.size} values)"
        told = ", ".join(f"{changes}: {_cut(rho)}" for changes, rho in enumerate(self.table))
        return f"ChangeRegion({{{told}}} by changed categories, in units of sigma)"


def _listed(parts: Sequence[str], last: str = "and") -> str:
    """``a, b and c``; of many the first ones."""
    if len(parts) > _SHOWN:
        return f"{', '.join(parts[:_SHOWN])}, … ({len(parts)} columns)"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _cut(value: float) -> str:
    """Three digits, never more than the value."""
    if not 0 < value < math.inf:
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    told = float(f"{math.floor(value / unit) * unit:.3g}")
    return f"{told if told <= value else told - unit:.9g}"
