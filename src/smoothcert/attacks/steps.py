"""What the attacks share: a model at rest, ascent directions and the feasible set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.attacks.soft_smoothed import noisy_logits, smoothed_log_probs
from smoothcert.errors import InvalidValueError


class Limits(TypedDict):
    """How far from an input, in how many steps, and whether inside [0, 1]."""

    epsilon: float
    steps: int
    clip: bool


@contextmanager
def weights_fixed(model: nn.Module) -> Iterator[None]:
    """Inside, the model's weights need no gradient; after, all is as it was."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode and its weights need no gradient; after, all is as it was.

    Attacked in train mode, batch statistics would follow the adversaries and dropout would move the target.
    """
    training = [module for module in model.modules() if module.training]
    with weights_fixed(model):
        try:
            for module in training:
                module.training = False
            yield
        finally:
            for module in training:
                module.training = True


def loss_gradient(model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of ``−log((1/m) Σ F_y(x+δ_i))`` in ``x``, and the smoothed log-probabilities."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        log_probs = smoothed_log_probs(noisy_logits(model, point, noise))
        # Examples don't share terms, so the gradient of the sum holds each one's own.
        (gradient,) = torch.autograd.grad(F.nll_loss(log_probs, y, reduction="sum"), point)
    return gradient, log_probs.detach()


@torch.no_grad()
def stein_direction(model: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """``−(1/m) Σ F_y(x+δ_i)·δ_i``: the same direction estimated from values alone, by Stein's identity."""
    probs = noisy_logits(model, x, noise).softmax(-1)
    of_label = probs.gather(2, y.expand(len(noise), -1).unsqueeze(2)).squeeze(2)
    return (for_each_example(of_label, noise) * noise).mean(0).neg()


def norms(x: Tensor) -> Tensor:
    """The ℓ2 norm of each example."""
    size: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return size


def unit(x: Tensor) -> Tensor:
    """Each example scaled to ℓ2 norm 1; zero stays zero."""
    # Divided by the largest entry first: the squares of a confident model's gradient underflow.
    largest = x.flatten(1).abs().amax(1)
    scaled = x / for_each_example(largest.where(largest > 0, 1), x)
    size = norms(scaled)
    return scaled / for_each_example(size.where(size > 0, 1), x)


def rescale(x: Tensor, size: Tensor) -> Tensor:
    """Each example scaled to its own ℓ2 norm; zero stays zero."""
    return unit(x) * for_each_example(size, x)


def stay_near(point: Tensor, x: Tensor, max_norm: float | None, clip: bool) -> Tensor:
    """``point`` moved into [0, 1] if ``clip``, then towards ``x`` until no further away than ``max_norm``."""
    if clip:
        point = point.clamp(0, 1)
    if max_norm is not None:
        # Room for the roundings of x + delta and of the norm, so that the ball is never left.
        room = max_norm - torch.finfo(x.dtype).eps * (norms(x) + 4 * max_norm)
        delta = point - x
        size = norms(delta)
        shrink = (room.clamp(min=0) / size.where(size > 0, 1)).clamp(max=1)
        point = x + delta * for_each_example(shrink, x)
        point = point.clamp(0, 1) if clip else point
    return point


def check_clippable(x: Tensor, clip: bool) -> None:
    """Refuse to keep adversaries in [0, 1] when the inputs themselves aren't."""
    if clip and bool(((x < 0) | (x > 1)).any()):
        raise InvalidValueError(
            f"clip=True keeps adversaries in [0, 1] but the inputs span [{float(x.min()):g}, "
            f"{float(x.max()):g}]: scale them or pass clip=False"
        )


def for_each_example(values: Tensor, like: Tensor) -> Tensor:
    """``values`` with as many dimensions as ``like``, to be combined with it."""
    return values.reshape(*values.shape, *[1] * (like.ndim - values.ndim))
