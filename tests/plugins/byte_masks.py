"""A perturbation of another kind, added from outside: every byte of an input is masked with probability β.

Theorem (randomized ablation, Levine & Feizi 2020). Let d bytes change. With probability β^d all of them are masked, and
then both noisy inputs are the same. So no probability moves by more than 1 − β^d, and the class stays if
p_A − p_B > 2·(1 − β^d).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import PERTURBATIONS, Copies, Perturbation
from smoothcert.perturb.grid import Grid

MASK = -1.0
ONE = 1 << 32


@dataclass(frozen=True)
class HammingBall:
    """All inputs that differ from the center in at most ``most`` bytes."""

    center: NDArray[np.float64]
    most: int

    @property
    def volume_radius(self) -> float:
        return float(self.most)

    def contains(self, point: ArrayLike) -> bool:
        return int((np.asarray(point) != self.center).sum()) <= self.most


@dataclass(frozen=True)
class MaskTheorem:
    """Radii are numbers of bytes."""

    keep: int
    length: int
    norm: ClassVar[str] = "bytes"
    ball: ClassVar[bool] = True

    def radius(self, bounds: ClassBounds) -> float:
        gap = Fraction(bounds.lower) - Fraction(bounds.upper)
        masked, most = Fraction(ONE - self.keep, ONE), 0
        while most < self.length and gap > 2 * (1 - masked ** (most + 1)):
            most += 1
        return float(most)

    def region(self, center: ArrayLike, bounds: ClassBounds) -> HammingBall | None:
        most = int(self.radius(bounds))
        return HammingBall(np.asarray(center, dtype=np.float64), most) if most else None


@dataclass(frozen=True, eq=False)
class MaskedCopies(Copies):
    """Bytes, or the mask in their place."""

    row: NDArray[np.float64]
    keep: int

    @property
    def dimension(self) -> int:
        return self.row.size

    def draw(self, out: torch.Tensor, bits: np.random.SFC64) -> None:
        words = bits.random_raw(out.numel()).reshape(out.shape) >> np.uint64(32)
        out.copy_(torch.from_numpy(np.where(words < self.keep, self.row, MASK)))


@PERTURBATIONS.register("byte-masks")
@dataclass(frozen=True)
class ByteMasks(Perturbation):
    """Each byte is shown with probability ``keep``/2³², drawn exactly."""

    name: ClassVar[str] = "byte-masks"
    norm: ClassVar[str] = "bytes"
    keep: int
    length: int

    @property
    def sigma(self) -> float:
        """The probability of a mask."""
        return 1 - self.keep / ONE

    def describe(self) -> dict[str, Any]:
        return {"noise": self.name, "sigma": self.sigma, "keep": self.keep, "length": self.length}

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        return cls(plan["keep"], plan["length"])

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        if input_shape != (self.length,):
            raise InvalidValueError(f"inputs must have {self.length} bytes, got shape {input_shape}")

    @property
    def certificate(self) -> MaskTheorem:
        return MaskTheorem(self.keep, self.length)

    def copies(self, x: NDArray[Any], grid: Grid, dtype: str, index: int) -> MaskedCopies:
        if not (np.equal(np.mod(x, 1), 0) & (x >= 0) & (x <= 255)).all():
            raise InvalidValueError(f"input {index} must hold bytes")
        return MaskedCopies(np.array(x, dtype=np.float64), self.keep)

    def error(self, grid: Grid, dimension: int) -> float:
        return 0.0
