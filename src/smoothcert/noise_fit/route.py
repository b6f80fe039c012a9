"""What the routes of a fit have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError


@dataclass(frozen=True)
class Outcome:
    """A sub-epoch's mean objective, and the shares of its inputs that were counted and right; None at the start."""

    objective: float | None = None
    counted: float | None = None
    right: float | None = None


class Route(Protocol):
    """An optimiser of σ: sub-epochs that depend on nothing but the plan, the data and :meth:`tensors`."""

    def rows(self, inputs: int) -> int:
        """Rows that a sub-epoch over this many inputs sends through the model."""

    def sigmas(self) -> NDArray[np.float64]:
        """The vector as it stands."""

    def tensors(self) -> dict[str, Any]:
        """Everything that the next sub-epoch depends on."""

    def restore(self, tensors: dict[str, Any]) -> None:
        """Go back to where :meth:`tensors` was asked."""

    def sub_epoch(
        self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None] | None
    ) -> Outcome:
        """Sub-epoch ``number``, from 1 on."""


def nothing_right(
    name: str, right: int, inputs: int, sigmas: NDArray[np.float64], hint: str = ""
) -> DataError:
    """The error for a fit in which no input can be certified."""
    mean = float(np.exp(np.log(sigmas).mean()))
    return DataError(
        f"of {inputs} inputs, noise of σ ≈ {mean:.3g} leaves {right} in their class, none with a majority, so "
        f"there is nothing to fit. Start smaller (--init), {hint}or check that {name} and the data belong together"
    )
