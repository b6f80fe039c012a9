"""The inputs of an epoch: shuffled, changed, cut into batches and those into shards, read one batch ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.images import TRIES, read_ahead
from smoothcert.errors import InvalidValueError
from smoothcert.training.plan import TrainPlan


class StreamPurpose(IntEnum):
    """One stream for each, so that drawing more of one never shifts another."""

    SHUFFLE = 0
    NOISE = 1
    MODEL = 2
    VALIDATION = 3
    VALIDATION_NOISE = 4
    AUGMENTATION = 5
    HOLDOUT = 6
    SIGMA = 7


def stream_seed(seed: int, epoch: int, purpose: StreamPurpose, shard: int = 0) -> int:
    """The number that seeds a stream."""
    words = [seed, epoch, int(purpose), shard]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def stream(
    seed: int, epoch: int, purpose: StreamPurpose, shard: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator at the beginning of a stream."""
    return torch.Generator(device).manual_seed(stream_seed(seed, epoch, purpose, shard))


@dataclass(frozen=True)
class Changes:
    """What was drawn for each image of a batch: whether it is mirrored, and where its window begins."""

    mirrored: Tensor
    top: Tensor
    left: Tensor
    shift: int

    def part(self, chosen: slice) -> Changes:
        """The changes of some of the images."""
        return Changes(self.mirrored[chosen], self.top[chosen], self.left[chosen], self.shift)


def draw_changes(images: int, flip: bool, shift: int, generator: torch.Generator) -> Changes:
    """Mirror each image with probability ½ if ``flip``; move it by up to ``shift`` pixels each way."""
    mirrored = torch.rand(images, generator=generator) < (0.5 if flip else 0.0)
    top, left = torch.randint(0, 2 * shift + 1, (2, images), generator=generator)
    return Changes(mirrored, top, left, shift)


def change(x: Tensor, changes: Changes) -> Tensor:
    """The changed images; what moves in from outside is 0, as in the papers' recipes."""
    x = x.where(~changes.mirrored.to(x.device).reshape(-1, 1, 1, 1), x.flip(3))
    if changes.shift == 0:
        return x
    images, _, height, width = x.shape
    padded = F.pad(x, [changes.shift] * 4)
    rows = changes.top.reshape(-1, 1) + torch.arange(height)
    columns = changes.left.reshape(-1, 1) + torch.arange(width)
    image = torch.arange(images).reshape(-1, 1, 1)
    # Indexing puts the channels last, because the slice stands between index tensors.
    return padded[image, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2).contiguous()


def check_augmentable(input_shape: tuple[int, ...], flip: bool, shift: int) -> None:
    """Refuse to mirror or move inputs that are no images."""
    if (flip or shift) and len(input_shape) != 3:
        raise InvalidValueError(f"flip and shift need images (channels, height, width), got {input_shape}")
    if shift and shift >= min(input_shape[1:]):
        raise InvalidValueError(f"shift must be less than the image's sides {input_shape[1:]}, got {shift}")


_Drawn: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64] | None, Changes | None]


@dataclass(frozen=True)
class BatchShard:
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

    def read(self, mine: Sequence[int], device: torch.device) -> Iterator[list[BatchShard]]:
        """The shards ``mine`` of each batch, the next batch being read while one is worked on."""

        def read(batch: _Drawn) -> list[BatchShard]:
            return [self._shard(number, *batch, device) for number in mine]

        with closing(read_ahead(self._drawn(), read, ahead=1, threads=1)) as batches:
            for _, shards in batches:
                yield shards

    def _drawn(self) -> Iterator[_Drawn]:
        """The inputs of each batch, and what is drawn for them, in the order of the batches."""
        plan, size = self.plan, self.plan.inputs_per_step
        shuffling = stream(plan.seed, self.epoch, StreamPurpose.SHUFFLE)
        changing = stream(plan.seed, self.epoch, StreamPurpose.AUGMENTATION)
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
    ) -> BatchShard:
        part = slice(*(len(chosen) * edge // self.shards for edge in (number, number + 1)))
        x, y = tensors(self.dataset, chosen[part], device, None if parts is None else parts[part])
        if changes is not None:
            x = change(x, changes.part(part))
        return BatchShard(number, x, y, len(y) / len(chosen), chosen[part])


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
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)  # it is taken while the device computes


def split_holdout(size: int, holdout: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions to train on and ``holdout`` positions kept apart, chosen by the seed."""
    if holdout >= size:
        raise InvalidValueError(f"holdout must be less than the {size} training inputs, got {holdout}")
    if holdout == 0:
        return np.arange(size), np.arange(0)
    order = torch.randperm(size, generator=stream(seed, 0, StreamPurpose.HOLDOUT)).numpy()
    return np.sort(order[holdout:]), np.sort(order[:holdout])
