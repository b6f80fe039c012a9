"""Everything that decides what a training run computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.objectives import OBJECTIVES, Objective, objective_name
from smoothcert.registry import unknown_name

Schedule = Literal["step", "cosine"]


@dataclass(frozen=True)
class TrainPlan:
    """An objective, its noise level, and stochastic gradient descent with Nesterov momentum.

    The defaults are the recipe that the papers' MNIST experiments share. ``sigma`` is in the units of
    the inputs; 0 trains without noise. The ``step`` schedule multiplies the learning rate by 0.1 every
    ``step_epochs`` epochs, ``cosine`` lowers it from ``lr`` towards 0 over all epochs.
    """

    sigma: float
    objective: str | Objective = "gaussian"
    epochs: int = 90
    batch_size: int = 256
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: Schedule = "step"
    step_epochs: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.objective, str):
            # Looked up here so that a misspelt name fails now and not when training starts.
            _ = OBJECTIVES[self.objective]
        for name in ("sigma", "weight_decay"):
            check_not_negative(name, getattr(self, name))
        check_positive("lr", self.lr)
        if not 0 < self.momentum < 1:
            raise InvalidValueError(f"momentum must lie strictly between 0 and 1, got {self.momentum}")
        for name in ("epochs", "batch_size", "step_epochs"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        if self.schedule not in get_args(Schedule):
            raise unknown_name("schedule", str(self.schedule), list(get_args(Schedule)))

    @property
    def objective_name(self) -> str:
        """The objective's registered name."""
        return self.objective if isinstance(self.objective, str) else objective_name(self.objective)

    def make_objective(self) -> Objective:
        """The objective given, or the named one with its default knobs."""
        return OBJECTIVES[self.objective]() if isinstance(self.objective, str) else self.objective

    def learning_rate(self, epoch: int) -> float:
        """The learning rate during ``epoch``, counted from 0."""
        if self.schedule == "step":
            return self.lr * 0.1 ** (epoch // self.step_epochs)
        return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
