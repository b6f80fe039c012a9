"""What a noise is: a distribution on the line, its theorem, and a scale for all or for each coordinate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import check_positive
from smoothcert.noise.thresholds import Thresholds
from smoothcert.registry import Registry

if TYPE_CHECKING:
    import torch

DEFAULT_NOISE = "gaussian"


class Noise(ABC):
    """Independent coordinates of one distribution that differ in scale alone.

    A kind of noise states the class variables and static methods below, for scale 1, in a file of its own: a class from
    which :class:`Isotropic` and :class:`~smoothcert.noise.diagonal.DiagonalNoise` make a noise with one scale and one
    with many. Its theorem reads: if p_A ≥ ``lower`` and every other class has at most ``upper``, the answer is the same
    wherever ‖δ ⊘ σ‖ < ``semi_axis``·gap(lower, upper) in ``norm``.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    """Its name with one scale."""
    norm: ClassVar[str]
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

    if TYPE_CHECKING:  # a dataclass would take a property for its field's default

        @property
        def sigma(self) -> float:
            """What papers index their models by: the standard deviation, or the geometric mean of several."""

    @property
    @abstractmethod
    def smallest_sigma(self) -> float:
        """The smallest standard deviation."""

    @abstractmethod
    def scales(self) -> NDArray[np.float64]:
        """The standard deviations: one number for all coordinates, or one for each."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a plan's JSON says of it; equal noises have equal descriptions."""

    @abstractmethod
    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape this noise can't be added to."""

    def semi_axes(self) -> NDArray[np.float64]:
        """The region's semi-axes where the gap is 1."""
        return np.asarray(self.scales() * self.semi_axis)


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

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    def scales(self) -> NDArray[np.float64]:
        """σ."""
        return np.array(self.sigma, dtype=np.float64)


NOISES: Registry[type[Isotropic]] = Registry("noise", __package__)
"""Noises with one scale for all coordinates."""
