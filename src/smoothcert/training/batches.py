"""The inputs of an epoch: shuffled, cut into batches and those into shards, read one batch ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.lazy_images import TRIES
from smoothcert.datasets.read_ahead import read_ahead
from smoothcert.errors import InvalidValueError
from smoothcert.training.augmentation import Changes, change, draw_changes
from smoothcert.training.plan import TrainPlan
from smoothcert.training.streams import Purpose, stream

_Drawn: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64] | None, Changes | None]


@dataclass(frozen=True)
class Shard:
    """A part of a batch that goes through the objective separately, with its own random draws."""

    number: int
    x: Tensor
    y: Tensor
    weight: float
    """Its share of the batch's inputs."""
    places: NDArray[np.int64]
    """Where its inputs are in the data set."""


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one epoch; each process takes its own shards of every batch.

    A shard depends on the plan alone, never on the number of processes: one process that takes all of them
    computes what several do together. A last batch too small to give every shard an input is left out.
    """

    dataset: Dataset
    inputs: NDArray[np.int64]
    plan: TrainPlan
    epoch: int
    shards: int

    def __len__(self) -> int:
        size = self.plan.inputs_per_step
        full, rest = divmod(len(self.inputs), size)
        return full * (size >= self.shards) + (rest >= self.shards)

    def read(self, mine: Sequence[int], device: torch.device) -> Iterator[list[Shard]]:
        """The shards ``mine`` of each batch, the next batch being read while one is worked on."""

        def read(batch: _Drawn) -> list[Shard]:
            return [self._shard(number, *batch, device) for number in mine]

        with closing(read_ahead(self._drawn(), read, ahead=1, threads=1)) as batches:
            for _, shards in batches:
                yield shards

    def _drawn(self) -> Iterator[_Drawn]:
        """The inputs of each batch, and what is drawn for them, in the order of the batches."""
        plan, size = self.plan, self.plan.inputs_per_step
        shuffling, changing = (
            stream(plan.seed, self.epoch, purpose) for purpose in (Purpose.SHUFFLE, Purpose.AUGMENTATION)
        )
        order = torch.randperm(len(self.inputs), generator=shuffling).numpy()
        for number in range(len(self)):
            chosen = self.inputs[order[number * size : (number + 1) * size]]
            parts = changes = None
            if plan.random_crops:
                parts = torch.rand(len(chosen), TRIES, 4, dtype=torch.float64, generator=changing).numpy()
            if plan.flip or plan.shift:
                changes = draw_changes(len(chosen), plan.flip, plan.shift, changing)
            yield chosen, parts, changes

    def _shard(
        self,
        number: int,
        chosen: NDArray[np.int64],
        parts: NDArray[np.float64] | None,
        changes: Changes | None,
        device: torch.device,
    ) -> Shard:
        part = slice(*(len(chosen) * edge // self.shards for edge in (number, number + 1)))
        x, y = tensors(self.dataset, chosen[part], device, None if parts is None else parts[part])
        if changes is not None:
            x = change(x, changes.part(part))
        return Shard(number, x, y, len(y) / len(chosen), chosen[part])


def tensors(
    dataset: Dataset,
    chosen: NDArray[np.int64],
    device: torch.device,
    parts: NDArray[np.float64] | None = None,
) -> tuple[Tensor, Tensor]:
    """Inputs, or the parts of them that draws choose, and labels on the device."""
    inputs = dataset.inputs(chosen) if parts is None else dataset.parts(chosen, parts)
    return _placed(inputs, device), _placed(dataset.labels[chosen], device)


def _placed(values: NDArray[Any], device: torch.device) -> Tensor:
    """On the device; for CUDA by way of pinned memory, from which it takes them while it computes."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def split_holdout(size: int, holdout: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions to train on and ``holdout`` positions kept apart, chosen by the seed."""
    if holdout >= size:
        raise InvalidValueError(f"holdout must be less than the {size} training inputs, got {holdout}")
    if holdout == 0:
        return np.arange(size), np.arange(0)
    order = torch.randperm(size, generator=stream(seed, 0, Purpose.HOLDOUT)).numpy()
    return np.sort(order[holdout:]), np.sort(order[:holdout])
