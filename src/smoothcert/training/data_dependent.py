"""Training with a σ for each example (Alfarra et al. 2020, Algorithm 2): the table, and one step of it per batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.attacks.steps import at_rest, weights_fixed
from smoothcert.noise import NOISES
from smoothcert.objectives.base import unit_noise
from smoothcert.sigma_search import radius_gradient
from smoothcert.training.batches import Shard
from smoothcert.training.plan import TrainPlan
from smoothcert.training.processes import Processes


class SigmaTable:
    """Each training example's own σ, kept across epochs.

    A batch first takes ``sigma_steps`` steps of ascent on its examples' radii, from the σ they had, with the weights
    as they are and the model in eval mode, or in training mode where the plan says so; then the objective runs with
    the result. A step that isn't a number leaves σ where it was, and σ stays within ``sigma_factor`` of the plan's.
    """

    def __init__(self, size: int, plan: TrainPlan) -> None:
        self.plan = plan
        self.values = torch.full((size,), plan.sigma, dtype=torch.float64)
        self._mine = torch.zeros(size, dtype=torch.bool)

    def step(self, model: nn.Module, shard: Shard, generator: torch.Generator) -> Tensor:
        """Move the σ of a shard's examples; returns them, one for each input."""
        places = torch.from_numpy(shard.places)
        sigma = self.values[places]
        low, high = self.plan.sigma / self.plan.sigma_factor, self.plan.sigma * self.plan.sigma_factor
        kind = NOISES[self.plan.noise]
        with weights_fixed(model) if self.plan.sigma_training_mode else at_rest(model):
            for _ in range(self.plan.sigma_steps):
                unit = unit_noise(shard.x, self.plan.sigma_samples, kind, generator)
                _, gradient = radius_gradient(model, shard.x, unit, sigma.to(shard.x.device), self.plan.noise)
                moved = (sigma + self.plan.sigma_lr * gradient.double().cpu()).clamp(low, high)
                sigma = moved.where(torch.isfinite(moved), sigma)
        self.values[places] = sigma
        self._mine[places] = True
        return sigma.to(shard.x)

    def share(self, processes: Processes) -> None:
        """Give every process the σ of all examples; in an epoch each example is one process's own."""
        values, owners = self.values.where(self._mine, 0.0), self._mine.double()
        processes.sum([values, owners])  # an owner's value plus zeros: no rounding
        self.values = values.where(owners > 0, self.values)
        self._mine.zero_()
