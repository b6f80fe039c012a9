"""Choosers: what says which level an input gets. Any model of levels will do; these need no training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError

_STATISTICS: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "mean": lambda rows: rows.mean(axis=1),
    "spread": lambda rows: rows.std(axis=1),
    "energy": lambda rows: np.square(rows).mean(axis=1),
}


@dataclass(frozen=True)
class ConstantChooser:
    """The same level everywhere: certificates are exactly those of that σ, and no vote is spent on choosing."""

    level: int
    """Counted from 0."""


@dataclass(frozen=True)
class StatisticChooser:
    """The level is how many of the ``edges`` a statistic of the noisy input exceeds.

    ``mean``, ``spread`` (standard deviation) or ``energy`` (mean square) of all its numbers. Noise adds σ² to the
    energy: edges are to be chosen for noisy inputs.
    """

    statistic: str
    """``mean``, ``spread`` or ``energy``."""
    edges: tuple[float, ...]
    """Ascending; one fewer than there are levels."""

    def __post_init__(self) -> None:
        if self.statistic not in _STATISTICS:
            raise InvalidValueError(
                f"no statistic is called {self.statistic!r}; there are {', '.join(_STATISTICS)}"
            )
        if not self.edges or any(a >= b for a, b in pairwise(self.edges)):
            raise InvalidValueError(
                f"the edges of {self.statistic} must be increasing numbers, got {self.edges}"
            )

    @property
    def text(self) -> str:
        """As it is written: ``spread:0.3,0.4``."""
        return f"{self.statistic}:{','.join(map(repr, self.edges))}"

    @property
    def levels(self) -> int:
        """How many levels the edges make."""
        return len(self.edges) + 1

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.int64]:
        """The level of each row."""
        rows = np.asarray(batch, dtype=np.float64).reshape(len(batch), -1)
        return np.searchsorted(self.edges, _STATISTICS[self.statistic](rows), side="left").astype(np.int64)


def chooser_named(text: str) -> ConstantChooser | StatisticChooser | None:
    """``constant:1`` or ``spread:0.3,0.4``; None where the text names neither, but perhaps a model."""
    name, colon, argument = text.partition(":")
    if not colon or name not in ("constant", *_STATISTICS):
        return None
    try:
        if name == "constant":
            return ConstantChooser(int(argument))
        return StatisticChooser(name, tuple(float(edge) for edge in argument.split(",")))
    except ValueError as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(
            f"{text!r} is no chooser: write constant:LEVEL, counted from 0, or {name}:EDGE,EDGE,…"
        ) from None
