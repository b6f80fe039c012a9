"""From a description of a model, which fits in a JSON file, to the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from smoothcert.architectures.base import builder
from smoothcert.errors import InvalidValueError, check_positive

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2023, 0.1994, 0.2010)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SVHN_MEAN = (0.4377, 0.4438, 0.4728)
SVHN_STD = (0.198, 0.201, 0.197)

_CUSTOMARY: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10": (CIFAR10_MEAN, CIFAR10_STD),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    # Photographs at ImageNet's size, for ImageNet's network.
    "kitti": (IMAGENET_MEAN, IMAGENET_STD),
    "svhn": (SVHN_MEAN, SVHN_STD),
}


def normalisation_for(dataset: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation for a data set's name, in [0, 1] pixel units.

    None, for no normalisation, where none is customary (MNIST and its like) or where it is for another
    number of channels.
    """
    mean_and_std = _CUSTOMARY.get(dataset)
    if mean_and_std is None or len(mean_and_std[0]) != channels:
        return None
    return mean_and_std


class Normalize(nn.Module):
    """Standardises each channel: ``(x - mean) / std``.

    It is part of the model so that noise is added, and radii are measured, in the units of the input
    ([0, 1] pixels) and not in standard deviations of the training set.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise InvalidValueError(f"mean and std need one value per channel each, got {mean} and {std}")
        for value in mean:
            if not math.isfinite(value):
                raise InvalidValueError(f"mean must be finite, got {value}")
        for value in std:
            check_positive("std", value)
        # Not persistent: the spec holds these numbers, and a second copy in the weights could contradict it.
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Standardise a batch of shape (n, channels, height, width)."""
        return (x - self.mean) / self.std


T = TypeVar("T", int, float, str)


@dataclass(frozen=True)
class ModelSpec:
    """Everything but the weights: which network, for which inputs and classes, normalised how.

    Inputs are in [0, 1] pixel units, and so are noise and radii, because normalisation by ``mean`` and
    ``std`` (one value per channel, or None for none at all) happens inside the model.
    """

    architecture: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    assumed: str | None = field(default=None, compare=False)
    """In words, what of this a checkpoint left open and was taken to be so."""

    def __post_init__(self) -> None:
        if not self.classes:
            raise InvalidValueError("classes must name at least one class, got none")
        if not self.input_shape:
            raise InvalidValueError("input_shape must have at least one dimension, got ()")
        if (self.mean is None) != (self.std is None):
            raise InvalidValueError(f"give both mean and std or neither, got {self.mean} and {self.std}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != self.input_shape[0]:
                raise InvalidValueError(
                    f"{name} needs a value for each of {self.input_shape[0]} channels, got {values}"
                )

    def to_json(self) -> dict[str, object]:
        """The spec as plain JSON values."""
        return {
            "architecture": self.architecture,
            "input_shape": list(self.input_shape),
            "classes": list(self.classes),
            "mean": None if self.mean is None else list(self.mean),
            "std": None if self.std is None else list(self.std),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> ModelSpec:
        """The spec ``to_json`` wrote; anything else raises InvalidValueError naming the field."""
        architecture = data.get("architecture")
        if not isinstance(architecture, str):
            raise InvalidValueError(f"architecture must be a name, got {architecture!r}")
        return cls(
            architecture,
            input_shape=_tuple_of(int, "input_shape", data.get("input_shape")),
            classes=_tuple_of(str, "classes", data.get("classes")),
            mean=None if data.get("mean") is None else _tuple_of(float, "mean", data["mean"]),
            std=None if data.get("std") is None else _tuple_of(float, "std", data["std"]),
        )


def _tuple_of(kind: type[T], name: str, values: object) -> tuple[T, ...]:
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(values, (list, tuple)) or not all(type(value) in kinds for value in values):
        raise InvalidValueError(f"{name} must be a list of {kind.__name__}, got {values!r}")
    return tuple(kind(value) for value in values)


def build(spec: ModelSpec) -> nn.Module:
    """A freshly initialised model: normalisation, or an identity in its place, and then the network.

    Its inputs are [0, 1] pixels. The parameters' names start with ``1.``, as in the checkpoints that
    Cohen et al. (2019) and those after them publish.
    """
    network = builder(spec.architecture)(spec.input_shape, len(spec.classes))
    if spec.mean is None or spec.std is None:
        return nn.Sequential(nn.Identity(), network)
    return nn.Sequential(Normalize(spec.mean, spec.std), network)


@contextmanager
def seeded_fork(seed: int) -> Iterator[None]:
    """PyTorch's global CPU random state set to ``seed``, and given back as it was found."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the GPUs too, and nothing would give their state back.
        torch.default_generator.manual_seed(seed)
        yield


def initialise(spec: ModelSpec, seed: int) -> nn.Module:
    """``build(spec)`` with initial weights that depend on ``seed`` alone."""
    with seeded_fork(seed):
        return build(spec)
