"""Noise with a scale for each coordinate (Tecot et al., *non-uniform* smoothing)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.noise.base import Noise
from smoothcert.registry import Registry


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalNoise(Noise):
    """Independent coordinates, ``sigmas`` their standard deviations, in the shape of the input.

    A constant vector *is* the isotropic noise: it draws the same bits. Equal vectors make equal noises.
    """

    stretched: ClassVar[bool] = True
    sigmas: NDArray[np.float64]
    """The standard deviations, in the shape of an input."""

    def __post_init__(self) -> None:
        sigmas = np.array(self.sigmas, dtype=np.float64)
        bad = np.argwhere(~(np.isfinite(sigmas) & (sigmas > 0)))
        if not sigmas.size:
            raise InvalidValueError("sigmas must hold a number for each input dimension, got none")
        if len(bad):
            where = tuple(int(i) for i in bad[0])
            raise InvalidValueError(
                f"sigmas must be positive and finite, got {sigmas[where]} at position {where} "
                f"({len(bad)} of {sigmas.size} are bad)"
            )
        sigmas.setflags(write=False)
        object.__setattr__(self, "sigmas", sigmas)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(self.sigmas, other.sigmas)

    def __repr__(self) -> str:
        """How many scales, and between which."""
        between = f"{self.smallest_sigma:.4g} to {self.largest_sigma:.4g}"
        return f"{type(self).__name__}({self.sigmas.size} scales from {between})"

    def __hash__(self) -> int:
        return hash((self.name, self.sha256))

    @cached_property
    def sigma(self) -> float:
        """Geometric mean of the σ_i; of equal ones exactly the one."""
        if self.smallest_sigma == self.largest_sigma:
            return self.smallest_sigma
        mean = math.exp(math.fsum(np.log(self.sigmas).ravel().tolist()) / self.sigmas.size)
        return min(max(mean, self.smallest_sigma), self.largest_sigma)

    @cached_property
    def smallest_sigma(self) -> float:
        """The smallest σ_i."""
        return float(self.sigmas.min())

    @cached_property
    def largest_sigma(self) -> float:
        """The largest σ_i."""
        return float(self.sigmas.max())

    @cached_property
    def sha256(self) -> str:
        """Names the vector: a hash of its shape and its float64 values."""
        return sigmas_sha256(self.sigmas)

    def describe(self) -> dict[str, Any]:
        """Name and geometric mean as of any noise; then what tells this vector from every other."""
        return {
            "noise": self.name,
            "sigma": self.sigma,
            "sigmas_sha256": self.sha256,
            "least_sigma": self.smallest_sigma,
            "dimension": self.sigmas.size,
        }

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs that don't have a σ for each coordinate."""
        if tuple(input_shape) != self.sigmas.shape:
            raise InvalidValueError(
                f"the noise has sigmas of shape {self.sigmas.shape}, the inputs have shape {tuple(input_shape)}: "
                "give a sigma for each coordinate of an input"
            )

    def scales(self) -> NDArray[np.float64]:
        """The σ_i."""
        return self.sigmas


def sigmas_sha256(sigmas: NDArray[np.float64]) -> str:
    """SHA-256 of a σ vector's shape and its values as little-endian float64."""
    digest = hashlib.sha256(repr(tuple(sigmas.shape)).encode())
    digest.update(np.ascontiguousarray(sigmas, dtype="<f8").tobytes())
    return digest.hexdigest()


DIAGONAL_NOISES: Registry[type[DiagonalNoise]] = Registry(
    "noise with a scale for each dimension", __package__
)


def diagonal_noise(kind: str, sigmas: NDArray[np.float64]) -> DiagonalNoise:
    """Noise of that kind, named as with one scale, with a scale for each coordinate."""
    return DIAGONAL_NOISES[f"diagonal-{kind}"](sigmas)
