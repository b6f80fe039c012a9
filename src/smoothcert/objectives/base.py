"""The interface of a training objective: the loss of a batch under noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, check_not_negative
from smoothcert.noise import Gaussian, Isotropic
from smoothcert.registry import Registry

Scale: TypeAlias = float | Tensor
"""One standard deviation for the batch, or a tensor with one for each of its examples."""


@dataclass(frozen=True)
class BatchNoise:
    """The noise of a batch: its standard deviation, and its kind, such as Uniform for ℓ1 certificates."""

    sigma: Scale
    kind: type[Isotropic] = Gaussian


Sigma = BatchNoise  # the name that plugins were written against


@dataclass(frozen=True)
class Passes:
    """What one step costs: passes through the network, each of ``rows`` rows for each input of the batch."""

    rows: int
    attack_forward: int = 0
    attack_backward: int = 0
    """Backward passes to the inputs alone, which cost about half of one to inputs and weights."""
    training: int = 1
    """Forward passes with a backward pass to the weights."""


@dataclass(frozen=True)
class Objective(ABC):
    """A training method; the fields of a subclass are its knobs, with their published values as defaults.

    The first line of the subclass's docstring is its summary, ``paper`` names where it comes from.
    """

    paper: ClassVar[str] = ""

    batch_counts_inputs: ClassVar[bool] = False
    """Whether a plan's ``batch_size`` is in inputs, whatever the number of draws, and not in rows."""

    @abstractmethod
    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """The mean loss of inputs ``x`` with labels ``y``; all randomness comes from ``generator``."""

    @property
    def draws(self) -> int:
        """Noise draws for each input of a step: its knob ``copies``, or one.

        A step takes that many times fewer inputs, so that methods compare at the same number of rows, unless
        ``batch_counts_inputs``.
        """
        return int(getattr(self, "copies", 1))

    def passes(self) -> Passes:
        """The cost of a step; an objective that does more than one pass over its draws says so."""
        return Passes(self.draws)


OBJECTIVES: Registry[type[Objective]] = Registry("objective", __package__)


def objective_name(objective: Objective) -> str:
    """The name an objective's class is registered under, or else the class's own."""
    return OBJECTIVES.name_of(type(objective)) or type(objective).__name__


def unit_noise(x: Tensor, samples: int, kind: type[Isotropic], generator: torch.Generator) -> Tensor:
    """That many draws of standard deviation 1 in the shape of ``x``, drawn where ``generator`` lives."""
    unit = torch.empty((samples, *x.shape), device=generator.device, dtype=x.dtype)
    kind.fill(unit, generator)
    return unit.to(x.device)


def draw_noise(x: Tensor, noise: BatchNoise, generator: torch.Generator) -> Tensor:
    """Noise in the shape of ``x``."""
    unit, sigma = unit_noise(x, 1, noise.kind, generator)[0], noise.sigma
    if not isinstance(sigma, Tensor):
        check_not_negative("sigma", sigma)
        return unit * sigma
    if sigma.shape != x.shape[:1]:
        raise InvalidValueError(
            f"sigma must be a number or hold one value for each of the {len(x)} inputs, "
            f"got a tensor of shape {tuple(sigma.shape)}"
        )
    return unit * sigma.to(x).reshape(-1, *[1] * (x.ndim - 1))


def noise_copies(x: Tensor, noise: BatchNoise, copies: int, generator: torch.Generator) -> Tensor:
    """That many independent draws of :func:`draw_noise`, stacked in front."""
    return torch.stack([draw_noise(x, noise, generator) for _ in range(copies)])


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) over the last dimension, from logarithms so that no probability is too small for it."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)
