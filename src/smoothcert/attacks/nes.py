"""Ascent by votes alone: NES on labels (Ilyas et al., 2018), for models of which nothing but answers is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.attacks.steps import at_rest, check_clippable, for_each_example, stay_near, unit
from smoothcert.errors import check_count, check_not_negative

# Where fewer copies than one in so many are misled, their votes tell no direction: the noise is doubled for the search,
# at most so often.
_MISLED = 16
_DOUBLINGS = 6
_ROWS = 1024  # shown to the model together


@torch.no_grad()
def nes(
    model: nn.Module, x: Tensor, y: Tensor, noise: Tensor, *, epsilon: float, steps: int, clip: bool = True
) -> Tensor:
    """A point within ``epsilon`` of each input where fewer of its noisy copies are called ``y``, as far as votes tell.

    Every step goes 2ε/``steps`` along −Σ (1[f(x′+wδ_i) = y] − mean)·δ_i: by Stein's identity the gradient of the share
    of other votes. Near an input that is robust all votes agree and tell nothing; there w grows until some don't.
    Each step turns the copies over by signs of its own, so that what one estimate gets wrong the next may get right.
    """
    check_not_negative("epsilon", epsilon)
    check_count("steps", steps)
    check_clippable(x, clip)
    x = x.detach()
    if epsilon == 0:
        return x
    point, width = x, x.new_ones(len(x))
    with at_rest(model):
        for step in range(steps):
            copies = noise * _signs(step, x)
            width = (width / 2).clamp(min=1)
            right = _votes(model, point, y, copies, width)
            for _ in range(_DOUBLINGS):
                agreed = right.mean(0) > 1 - 1 / _MISLED
                if not bool(agreed.any()):
                    break
                width = torch.where(agreed, 2 * width, width)
                right[:, agreed] = _votes(model, point[agreed], y[agreed], copies[:, agreed], width[agreed])
            weights = for_each_example(right - right.mean(0), copies)
            direction = (weights * copies).mean(0).neg()
            point = stay_near(point + 2 * epsilon / steps * unit(direction), x, epsilon, clip)
    return point


def _votes(model: nn.Module, x: Tensor, y: Tensor, copies: Tensor, width: Tensor) -> Tensor:
    """1 where a copy is called ``y``, of shape (copies, inputs)."""
    found = []
    for some in torch.split(copies, max(1, _ROWS // len(x))):
        labels = model((x + some * for_each_example(width, x)).flatten(0, 1)).argmax(-1)
        found.append((labels.reshape(len(some), len(x)) == y).to(x.dtype))
    return torch.cat(found)


def _signs(step: int, x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 2, x.shape[1:], generator=generator).mul_(2).sub_(1).to(x)
