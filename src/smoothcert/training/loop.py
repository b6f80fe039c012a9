"""The training loop: batches, steps and metrics, the same for every objective."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.architectures import seeded_fork
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, ModelError, SmoothcertError
from smoothcert.objectives import gaussian_noise
from smoothcert.training.plan import TrainPlan

Progress: TypeAlias = Callable[[int, int, int, int, float], None]
"""Called after each step with (epoch, epochs, batch, batches, loss), counted from 1."""

ACCURACY_INPUTS = 1000
"""At most this many training inputs are voted on once each for an epoch's noisy accuracy."""

# One random stream for each purpose, so that drawing more of one never shifts another.
_SHUFFLE, _NOISE, _MODEL, _SAMPLE, _SAMPLE_NOISE = range(5)


class TrainingDivergedError(SmoothcertError):
    """A loss that is no longer a finite number."""


@dataclass(frozen=True)
class EpochMetrics:
    """What one epoch did; ``accuracy`` is that of the model after it, on noisy training inputs."""

    epoch: int
    loss: float
    accuracy: float
    learning_rate: float
    seconds: float


def train(
    model: nn.Module,
    dataset: Dataset,
    plan: TrainPlan,
    *,
    progress: Progress | None = None,
    device: str | torch.device = "cpu",
) -> list[EpochMetrics]:
    """Train ``model`` in place and leave it in eval mode on ``device``.

    Every random draw comes from streams made of the plan's seed and the epoch, and the global stream is left
    as it was. So on one machine's CPU, with one number of threads (floating-point sums depend on how they
    are split), the same initial weights, data and plan give the same weights.
    """
    model.to(device)
    _check_fit(model, dataset, torch.device(device))
    optimizer = torch.optim.SGD(
        model.parameters(), plan.lr, plan.momentum, weight_decay=plan.weight_decay, nesterov=True
    )
    history = []
    for epoch in range(plan.epochs):
        with seeded_fork(_stream_seed(plan.seed, epoch, _MODEL)):
            history.append(_run_epoch(model, dataset, plan, epoch, optimizer, progress, torch.device(device)))
    return history


def _run_epoch(
    model: nn.Module,
    dataset: Dataset,
    plan: TrainPlan,
    epoch: int,
    optimizer: torch.optim.Optimizer,
    progress: Progress | None,
    device: torch.device,
) -> EpochMetrics:
    started = time.perf_counter()
    objective = plan.make_objective()
    learning_rate = plan.learning_rate(epoch)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    order = torch.randperm(len(dataset), generator=_stream(plan.seed, epoch, _SHUFFLE)).numpy()
    noise = _stream(plan.seed, epoch, _NOISE, device)
    batches = math.ceil(len(dataset) / plan.batch_size)
    total = 0.0
    model.train()
    for batch, (x, y) in enumerate(_batches(dataset, order, plan.batch_size, device), start=1):
        optimizer.zero_grad(set_to_none=True)
        loss = objective.loss(model, x, y, plan.sigma, noise)
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingDivergedError(
                f"the loss of objective {plan.objective_name!r} became {value} in epoch {epoch + 1}, "
                f"batch {batch} of {batches}: try a learning rate below {learning_rate:g}"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += value * len(y)
        if progress is not None:
            progress(epoch + 1, plan.epochs, batch, batches, value)
    accuracy = _noisy_accuracy(model, dataset, plan, epoch, device)
    return EpochMetrics(
        epoch + 1, total / len(dataset), accuracy, learning_rate, time.perf_counter() - started
    )


def _batches(
    dataset: Dataset, order: NDArray[np.int64], size: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield (
            torch.from_numpy(dataset.inputs(chosen)).to(device),
            torch.from_numpy(dataset.labels[chosen]).to(device),
        )


@torch.no_grad()
def _noisy_accuracy(
    model: nn.Module, dataset: Dataset, plan: TrainPlan, epoch: int, device: torch.device
) -> float:
    model.eval()
    chooser = _stream(plan.seed, epoch, _SAMPLE)
    sample = torch.randperm(len(dataset), generator=chooser)[:ACCURACY_INPUTS].numpy()
    noise = _stream(plan.seed, epoch, _SAMPLE_NOISE, device)
    right = 0
    for x, y in _batches(dataset, sample, plan.batch_size, device):
        right += int((model(x + gaussian_noise(x, plan.sigma, noise)).argmax(1) == y).sum())
    return right / len(sample)


@torch.no_grad()
def _check_fit(model: nn.Module, dataset: Dataset, device: torch.device) -> None:
    """Refuse a data set whose inputs the model can't take or whose labels it has no logit for."""
    model.eval()
    try:
        logits = model(torch.from_numpy(dataset.inputs([0])).to(device))
    except RuntimeError as error:
        raise ModelError(
            f"the model can't take inputs of {dataset.name}, of shape {dataset.input_shape}: {error}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(f"the model must give logits of shape (n, classes), it gave {shape} for one input")
    highest = int(dataset.labels.max())
    if highest >= logits.shape[1]:
        raise DataError(
            f"{dataset.name} has label {highest} but the model knows {logits.shape[1]} classes "
            f"(0..{logits.shape[1] - 1}): build it for {len(dataset.classes)} classes"
        )


def _stream_seed(seed: int, epoch: int, purpose: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)[0])


def _stream(seed: int, epoch: int, purpose: int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(_stream_seed(seed, epoch, purpose))
