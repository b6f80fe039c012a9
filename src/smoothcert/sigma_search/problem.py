"""What a search is told: the model, where σ starts, and the certification that will follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smoothcert.bounds import Bound
from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES, Grid, Noise
from smoothcert.sampling import BaseClassifier, Execution, Prepared
from smoothcert.sampling.models import TorchClassifier
from smoothcert.sampling.models.copies import Lending, private_copy


@dataclass(frozen=True)
class Problem:
    """A prepared model, noise at σ₀, and the bound that n votes at level α will be given to afterwards."""

    base: BaseClassifier
    prepared: Prepared
    noise: Noise
    rule: Bound
    n: int
    alpha: float
    seed: int = 0
    execution: Execution = field(default_factory=Execution)
    grid: Grid = field(default_factory=lambda: Grid.of(None))

    @property
    def start(self) -> float:
        """σ₀."""
        return self.noise.sigma

    def module(self) -> nn.Module:
        """A differentiable copy of the model on the device; its weights need no gradient."""
        check_differentiable(self.base)
        assert isinstance(self.base, TorchClassifier)
        numerics = self.prepared.numerics
        # The prepared copy was made for inference only, and 16-bit types lose the small steps of σ.
        return private_copy(self.base.module).to(device=self.execution.device, dtype=numerics.noise_dtype())

    def lend(self, module: nn.Module) -> Lending[nn.Module]:
        """Copies of :meth:`module` that share its weights, each for one thread at a time."""
        assert isinstance(self.base, TorchClassifier)
        return self.base.lend(module)

    def tensor(self, index: int, x: NDArray[np.generic]) -> torch.Tensor:
        """An input in the type of its noise, checked before anything is spent on it."""
        if tuple(x.shape) != self.prepared.input_shape:
            raise InvalidValueError(
                f"input {index} has shape {x.shape}, the model was prepared for {self.prepared.input_shape}"
            )
        row = np.array(x, dtype=np.float64)
        if not np.isfinite(row).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(row))[0])
            raise InvalidValueError(
                f"input {index} holds {row[where]} at position {where}; inputs must be finite"
            )
        return torch.from_numpy(row).to(self.prepared.numerics.noise_dtype())


def with_sigma(noise: Noise, sigma: float) -> Noise:
    """The same kind of noise at another σ."""
    # NOISES holds dataclasses whose one field is sigma.
    return NOISES[noise.name](sigma)  # type: ignore[call-arg]


def check_differentiable(base: BaseClassifier) -> None:
    """Refuse a model whose gradients can't be had, and say what works instead."""
    if not isinstance(base, TorchClassifier):
        raise InvalidValueError(
            f"this sigma search needs the gradients of a torch module, and {base.name} "
            f"({type(base).__name__}) has none: use 'ladder' or 'grid', which only count votes"
        )


def places(indices: list[int], slots: int) -> list[list[int]]:
    """Positions of ``indices`` arranged in waves: in each, at most one for every slot, at the slot's place.

    An input's slot follows from its index alone, so that it sits in the same rows of a pass whoever its
    neighbours are; −1 marks an empty slot. Fibonacci hashing spreads evenly spaced indices evenly.
    """
    lanes: list[list[int]] = [[] for _ in range(slots)]
    for position, index in enumerate(indices):
        lanes[slot_of(index, slots)].append(position)
    depth = max((len(lane) for lane in lanes), default=0)
    return [[lane[wave] if wave < len(lane) else -1 for lane in lanes] for wave in range(depth)]


def slot_of(index: int, slots: int) -> int:
    """The slot of an input, in 0..slots−1."""
    return ((index * 0x9E3779B97F4A7C15 & (1 << 64) - 1) * slots) >> 64
