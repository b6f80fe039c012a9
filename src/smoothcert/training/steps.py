"""What a training step is made of: optimiser, precision, layout, losses and examples' σ; and the ACR between epochs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, Optimizer

from smoothcert.attacks import at_rest, weights_fixed
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.models.numerics import Dtype, Numerics
from smoothcert.objectives.base import unit_noise
from smoothcert.perturb.base import NOISES
from smoothcert.runs.records import average_certified_radius
from smoothcert.smoothing.answers import record_of
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.search.judging import radius_gradient
from smoothcert.training.batches import BatchShard
from smoothcert.training.plan import Precision, TrainPlan
from smoothcert.training.processes import Processes


def make_optimizer(parameters: Iterable[nn.Parameter], plan: TrainPlan) -> Optimizer:
    """The plan's optimiser; its state dict is all that a later process needs to go on exactly."""
    inside = 0.0 if plan.decoupled_decay else plan.weight_decay
    made: Optimizer
    if plan.optimizer == "adam":
        made = Adam(parameters, plan.lr, (plan.momentum, 0.999), weight_decay=inside)
    elif plan.optimizer == "adadelta":
        made = Adadelta(parameters, plan.lr, weight_decay=inside)
    else:
        made = SGD(parameters, plan.lr, plan.momentum, weight_decay=inside, nesterov=plan.nesterov)

    @torch.no_grad()
    def shrink(optimizer: Optimizer, _arguments: Any, _keywords: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * plan.weight_decay)

    if plan.decoupled_decay and plan.weight_decay:
        # As a hook it runs with the steps that are taken, not with those that a loss scaler leaves out.
        made.register_step_pre_hook(shrink)
    return made


class WithPrecision(nn.Module):
    """A network whose passes run in the given type and layout and whose logits come back in float32.

    Losses and attacks then work in float32, where a probability near 1 keeps the digits that matter.
    """

    def __init__(
        self,
        network: nn.Module,
        precision: Precision,
        device: torch.device,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        self.network = network
        self._layout = layout
        self._device_type = device.type
        self._dtype: torch.dtype = getattr(torch, precision)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n, classes)."""
        x = x.contiguous(memory_format=self._layout)
        if self._dtype == torch.float32:
            logits: Tensor = self.network(x)
            return logits
        with torch.autocast(self._device_type, self._dtype):
            logits = self.network(x)
        return logits.float()


@torch.no_grad()
def settle_layout(model: nn.Module, sample: Tensor) -> torch.memory_format:
    """Lay the weights of convolutions out channels last, if the model then still takes images; else leave all as it is.

    Convolutions on a CPU are a quarter to a half faster so. The numbers are the same but for rounding, and the choice
    depends on model and data alone. A module that looks at its inputs' strides (``view``) keeps the usual layout.
    """
    if sample.ndim != 4 or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return torch.contiguous_format
    try:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        model(sample.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        restore_layout(model)
        return torch.contiguous_format
    return torch.channels_last


def restore_layout(model: nn.Module) -> None:
    """Lay the weights out in the usual way again."""
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


READ_EVERY = 16
"""Losses that an accelerator may be ahead of what was read: a diverged run ends so many steps later at most."""


class Losses:
    """Adds up the losses of an epoch. The first is read at once, the others ``every`` so many and at the end.

    Whatever isn't finite is handed to ``refuse`` with the number of its step, which raises. Losses are read in their
    order and summed as Python floats: the mean doesn't depend on when they were read.
    """

    def __init__(self, every: int, refuse: Callable[[int, float], None]) -> None:
        self._every, self._refuse = every, refuse
        self._pending: list[tuple[int, Tensor, int]] = []
        self._step, self._step_total, self._step_inputs = 0, 0.0, 0
        self._total, self._inputs = 0.0, 0
        self.latest = math.nan
        """The mean loss of the last step that is known."""
        self.reads = 0
        """How often the host has waited for the device."""

    @classmethod
    def on(cls, device: torch.device, refuse: Callable[[int, float], None]) -> Losses:
        """As a device needs it: on the CPU nothing waits, and a loss is known before it reaches the weights."""
        return cls(1 if device.type == "cpu" else READ_EVERY, refuse)

    def add(self, step: int, loss: Tensor, inputs: int) -> None:
        """The mean loss over some inputs of a step, steps counted from 1."""
        self._pending.append((step, loss.detach(), inputs))
        if len(self._pending) >= self._every or not self.reads:
            self.read()

    def read(self) -> None:
        """Wait for what was computed so far."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self.reads += 1
        # One transfer for all of them.
        values = torch.stack([loss.double() for _, loss, _ in pending]).tolist()
        for (step, _, inputs), value in zip(pending, values):
            if not math.isfinite(value):
                self._refuse(step, value)
            if step != self._step:
                self._end_step()
                self._step = step
            self._step_total += value * inputs
            self._step_inputs += inputs
            self.latest = self._step_total / self._step_inputs

    def sums(self) -> Tensor:
        """The sum over inputs, and their number, once the epoch is over."""
        self.read()
        self._end_step()
        return torch.tensor([self._total, self._inputs], dtype=torch.float64)

    def _end_step(self) -> None:
        if self._step_inputs:
            self._total += self._step_total / self._step_inputs * self._step_inputs
            self._inputs += self._step_inputs
        self._step_total, self._step_inputs = 0.0, 0


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

    def step(self, model: nn.Module, shard: BatchShard, generator: torch.Generator) -> Tensor:
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


_DTYPES: dict[Precision, Dtype] = {
    "float32": "auto",
    "bfloat16": "autocast-bfloat16",
    "float16": "autocast-float16",
}


@dataclass(frozen=True)
class AcrCheck:
    """After every so many epochs, and after the last, the ACR of some validation inputs at the plan's σ.

    These are certificates, with few votes: lower than more votes would give, and comparable between epochs, which have
    the same inputs and the same noise.
    """

    every: int
    inputs: int = 100
    votes: int = 1000

    def __post_init__(self) -> None:
        for name in ("every", "inputs", "votes"):
            check_count(f"acr_{name}", getattr(self, name))

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether it is made after this epoch, counted from 1."""
        return epoch % self.every == 0 or epoch == epochs

    def counted(self, inputs: int) -> int:
        """How many of ``inputs`` are certified each time."""
        return min(self.inputs, inputs)

    def try_out(self, model: nn.Module, dataset: Dataset, plan: TrainPlan, device: torch.device) -> None:
        """Refuse what couldn't be certified, before any training."""
        if plan.sigma == 0:
            raise InvalidValueError("nothing is certified with sigma 0: drop --acr-every, or give --sigma")
        self._classifier(model, dataset, plan, device, 1).prepare(dataset.input_shape)

    def measure(
        self,
        model: nn.Module,
        dataset: Dataset,
        inputs: NDArray[np.int64],
        plan: TrainPlan,
        device: torch.device,
        workers: int,
    ) -> float:
        """The mean radius of an even choice of ``inputs``, 0 where the answer is wrong or missing."""
        places = np.linspace(0, len(inputs) - 1, self.counted(len(inputs))).round().astype(np.int64)
        chosen = [int(index) for index in inputs[places]]
        answers = self._classifier(model, dataset, plan, device, workers).certify_each(dataset.each(chosen))
        return average_certified_radius(
            [record_of(a, a.index, int(dataset.labels[a.index])) for a in answers]
        )

    def _classifier(
        self, model: nn.Module, dataset: Dataset, plan: TrainPlan, device: torch.device, workers: int
    ) -> SmoothedClassifier:
        classifier = SmoothedClassifier(
            copy.deepcopy(model).eval(),  # a copy: voting may lay weights out anew
            sigma=plan.sigma,
            noise=plan.noise,
            n=self.votes,
            seed=plan.seed,
            numerics=Numerics(_DTYPES[plan.precision]),
            execution=Execution(str(device), workers if device.type == "cpu" else None),
        )
        classifier.settle_for(dataset.levels, dataset.largest)
        return classifier
