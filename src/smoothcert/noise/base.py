"""What the rest of the house may ask of a noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from smoothcert.registry import Registry

if TYPE_CHECKING:
    import torch


class Noise(Protocol):
    """A distribution with independent coordinates; knows only how to draw."""

    name: ClassVar[str]

    @property
    def sigma(self) -> float:
        """The number by which papers index their models: the standard deviation, or the geometric mean of several."""
        ...

    def fill(self, out: torch.Tensor, generator: torch.Generator) -> None:
        """Overwrite the contiguous tensor ``out``, of shape (rows, *input shape), with fresh, independent noise."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a plan's JSON says of it; equal noises have equal descriptions."""
        ...

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape this noise can't be added to."""
        ...


NOISES: Registry[type[Noise]] = Registry("noise")
"""Noises with one scale for all coordinates: dataclasses whose one field is sigma."""
