"""What the rest of the house may ask of a noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise.thresholds import Thresholds
from smoothcert.registry import Registry


class Noise(Protocol):
    """A distribution with independent coordinates that differ in scale alone."""

    name: ClassVar[str]

    @property
    def sigma(self) -> float:
        """The number by which papers index their models: the standard deviation, or the geometric mean of several."""
        ...

    def __hash__(self) -> int: ...

    def scales(self) -> NDArray[np.float64]:
        """The standard deviations: one number for all coordinates, or one for each."""
        ...

    @staticmethod
    def thresholds(rho: Fraction) -> Thresholds:
        """Where the cells of a grid with ρ steps to a standard deviation end, as multiples of 2⁻⁵⁸."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a plan's JSON says of it; equal noises have equal descriptions."""
        ...

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape this noise can't be added to."""
        ...


NOISES: Registry[type[Noise]] = Registry("noise")
"""Noises with one scale for all coordinates: dataclasses whose one field is sigma."""
