"""The interface of a training objective: the loss of a batch under noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from smoothcert.errors import InvalidValueError, check_count, check_not_negative
from smoothcert.knobs import from_mapping
from smoothcert.objectives.ramps import Ramp, at_epoch
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES, Isotropic
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Scale: TypeAlias = "float | Tensor"
"""One standard deviation for the batch, or a tensor with one for each of its examples."""


@dataclass(frozen=True)
class BatchNoise:
    """The noise of a batch: its standard deviation, and its kind, such as Uniform for ℓ1 certificates."""

    sigma: Scale
    kind: type[Isotropic] = Gaussian


Sigma = BatchNoise  # the name that plugins were written against


@dataclass(frozen=True)
class StepCost:
    """What one step costs: passes through the network, each of ``rows`` rows for each input of the batch."""

    rows: int
    attack_forward: int = 0
    attack_backward: int = 0
    """Backward passes to the inputs alone, which cost about half of one to inputs and weights."""
    training: int = 1
    """Forward passes with a backward pass to the weights."""


@dataclass(frozen=True)
class Objective(ABC):
    """A training method; the fields of a subclass are its options, with their published values as defaults.

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
        """Noise draws for each input of a step: its option ``copies``, or one.

        A step takes that many times fewer inputs, so that methods compare at the same number of rows, unless
        ``batch_counts_inputs``.
        """
        return int(getattr(self, "copies", 1))

    def passes(self) -> StepCost:
        """The cost of a step; an objective that does more than one pass over its draws says so."""
        return StepCost(self.draws)


OBJECTIVES: Registry[type[Objective]] = Registry("objective", __package__)


def objective_name(objective: Objective) -> str:
    """The name an objective's class is registered under, or else the class's own."""
    return OBJECTIVES.name_of(type(objective)) or type(objective).__name__


def unit_noise(x: Tensor, samples: int, kind: type[Isotropic], generator: torch.Generator) -> Tensor:
    """That many draws of standard deviation 1 in the shape of ``x``, drawn where ``generator`` lives."""
    import torch

    unit = torch.empty((samples, *x.shape), device=generator.device, dtype=x.dtype)
    kind.fill(unit, generator)
    return unit.to(x.device)


def draw_noise(x: Tensor, noise: BatchNoise, generator: torch.Generator) -> Tensor:
    """Noise in the shape of ``x``."""
    from torch import Tensor

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
    import torch

    return torch.stack([draw_noise(x, noise, generator) for _ in range(copies)])


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) over the last dimension, from logarithms so that no probability is too small for it."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


class SmoothingLoss:
    """``criterion(model, x, y)``: the mean loss of a batch by one of the methods of ``smoothcert recipes``.

    ``x`` are inputs without noise, in the units in which ``sigma`` is, and normalisation is the model's. The loss adds
    the noise itself, and calls the model as often as the method needs; it holds no weights. ``knobs`` are the method's
    (``copies=4``), with their published values as defaults; a method of one's own is given as an
    :class:`~smoothcert.objectives.Objective`.

    All that is random comes from ``generator``, seeded by ``seed`` or else by torch's own generator: what
    ``torch.manual_seed`` makes reproducible includes this. For a checkpoint keep ``generator.get_state()``.

    ``ramps`` let σ or an option rise over epochs: ``"lam:10"`` from 0 over 10 epochs, ``"sigma=0.1:5"``, ``"lam:0@60"``
    at once after 60. Call :meth:`set_epoch` at each epoch's start; until then the first epoch's values hold.
    """

    def __init__(
        self,
        method: str | Objective = "gaussian",
        *,
        sigma: float,
        noise: str = DEFAULT_NOISE,
        seed: int | None = None,
        ramps: str | Ramp | Sequence[str | Ramp] = (),
        **knobs: Any,
    ) -> None:
        import torch

        if isinstance(method, Objective):
            if knobs:
                raise InvalidValueError(f"{', '.join(knobs)}: a method given as an object has its own")
            self.objective = method
        else:
            self.objective = from_mapping(OBJECTIVES[method], knobs, method, OBJECTIVES.load())
        kind = NOISES[noise]
        self._final = (self.objective, BatchNoise(kind(sigma).sigma, kind))
        listed = [ramps] if isinstance(ramps, str | Ramp) else ramps
        self.ramps = tuple(Ramp.parse(each) if isinstance(each, str) else each for each in listed)
        self.set_epoch(0)
        if seed is None:
            seed = int(torch.randint(2**62, ()).item())
        check_count("seed", seed, least=0)
        self.generator = torch.Generator().manual_seed(seed)

    def set_epoch(self, epoch: int) -> None:
        """Take the values that the ramps have in this epoch, counted from 0."""
        check_count("epoch", epoch, least=0)
        self.objective, self.noise = self._final
        for ramp in self.ramps:
            if ramp.option == "sigma":
                self.noise = BatchNoise(ramp.value(float(self.noise.sigma), epoch), self.noise.kind)
            else:
                self.objective = at_epoch(self.objective, ramp, epoch, ["sigma"])

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss; call ``backward()`` on it."""
        return self.objective.loss(model, x, y, self.noise, self.generator)

    def __repr__(self) -> str:
        name, kind = objective_name(self.objective), self.noise.kind.name
        return f"SmoothingLoss({name!r}, sigma={self.noise.sigma:g}, noise={kind!r})"
