"""Decoupled direction and norm (Rony et al., 2019; on smoothed classifiers Salman et al., 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from smoothcert.attacks.steps import (
    at_rest,
    check_clippable,
    for_each_example,
    loss_gradient,
    norms,
    rescale,
    stay_near,
    unit,
)
from smoothcert.errors import check_count, check_not_negative, check_positive, check_probability


def ddn(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    epsilon: float,
    steps: int,
    gamma: float = 0.05,
    start_norm: float = 1.0,
    clip: bool = True,
) -> Tensor:
    """The smallest perturbation found, of norm at most ``epsilon``, that fools the soft-smoothed classifier.

    Each step follows the normalised gradient of ``−log((1/m) Σ F_y(x'+δ_i))`` and then gives the perturbation
    a norm of its own: 1−γ times the last where it fooled, 1+γ times where it didn't, never above ``epsilon``.
    The step size falls from 1 to 0.01 as a cosine. An input that is wrong to begin with comes back as it is;
    one that is never fooled comes back at the last step's point, where the published code gives up and
    returns the input. That code also caps the norm only at the end, and rounds to 256 levels.

    Cost: ``steps`` forward passes of all copies and as many backward passes to the inputs; none for
    ``epsilon`` 0. The weights take no part: neither graph nor ``.grad`` is made for them.
    """
    check_not_negative("epsilon", epsilon)
    check_count("steps", steps)
    check_probability("gamma", gamma)
    check_positive("start_norm", start_norm)
    x = x.detach()
    if epsilon == 0:
        return x
    check_clippable(x, clip)
    point, best = x, x
    norm = x.new_full((len(x),), min(start_norm, epsilon))
    smallest = torch.full_like(norm, float("inf"))
    with at_rest(model):
        for step in range(steps):
            gradient, log_probs = loss_gradient(model, point, y, noise)
            fooled = log_probs.argmax(1) != y
            size = norms(point - x)
            better = fooled & (size < smallest)
            smallest = size.where(better, smallest)
            best = point.where(for_each_example(better, x), best)
            norm = (norm * (1 - gamma * (2 * fooled.to(norm) - 1))).clamp(max=epsilon)
            moved = point - x + _step_size(step, steps) * unit(gradient)
            point = stay_near(x + rescale(moved, norm), x, epsilon, clip)
    return best.where(for_each_example(smallest < float("inf"), x), point)


def _step_size(step: int, steps: int) -> float:
    return 0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2
