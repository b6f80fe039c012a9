"""Random changes of images that don't change what they show."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from smoothcert.errors import InvalidValueError


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
        raise InvalidValueError(
            f"flip and shift need images of shape (channels, height, width), the inputs have {input_shape}"
        )
    if shift and shift >= min(input_shape[1:]):
        raise InvalidValueError(f"shift must be less than the image's sides {input_shape[1:]}, got {shift}")
