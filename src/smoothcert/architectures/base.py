"""What an architecture is to the rest of the library: a name and a builder."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.registry import Registry


class Builder(Protocol):
    """Makes a freshly initialised network that maps a batch of inputs to one logit per class."""

    def __call__(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build for one input's shape and a number of classes."""


ARCHITECTURES: Registry[Builder] = Registry("architecture", __package__)


def image_shape(
    architecture: str, input_shape: tuple[int, ...], classes: int, least_side: int
) -> tuple[int, int, int]:
    """The checked (channels, height, width) of an image network's input."""
    check_count("classes", classes)
    fits = (
        len(input_shape) == 3
        and all(isinstance(size, int) and not isinstance(size, bool) for size in input_shape)
        and input_shape[0] >= 1
        and min(input_shape[1:]) >= least_side
    )
    if not fits:
        raise InvalidValueError(
            f"{architecture} takes inputs of shape (channels, height, width) with sides of at least "
            f"{least_side}, got {input_shape}"
        )
    channels, height, width = input_shape
    return channels, height, width
