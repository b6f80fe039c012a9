"""From a description of a model, which fits in a JSON file, to the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import nn

from smoothcert.architectures.lookup import builder
from smoothcert.architectures.normalize import Normalize
from smoothcert.errors import InvalidValueError

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
                    f"{name} needs one value for each of the {self.input_shape[0]} channels, got {values}"
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
