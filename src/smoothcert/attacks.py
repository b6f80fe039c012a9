"""Attacks on the soft-smoothed classifier, the mean softmax over fixed noise copies: PGD, DDN and NES.

Each is a function of a model, inputs, labels and the noise copies, which have the shape of the inputs with one more
dimension in front. The weights take no part: neither graph nor ``.grad`` is made for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import (
    InvalidValueError,
    check_count,
    check_not_negative,
    check_positive,
    check_probability,
)

# Where fewer copies than one in so many are misled, their votes tell no direction: the noise is doubled for the search,
# at most so often.
_MISLED = 16
_DOUBLINGS = 6
_ROWS = 1024  # shown to the model together


def noisy_logits(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Logits at ``x`` plus each of its noise copies, of shape (copies, inputs, classes): one forward pass.

    ``noise`` has the shape of ``x`` with one more dimension in front, the copies.
    """
    if noise.ndim != x.ndim + 1 or noise.shape[1:] != x.shape:
        raise InvalidValueError(
            f"noise must be of shape (copies, *{tuple(x.shape)}), got {tuple(noise.shape)}"
        )
    logits: Tensor = model((x + noise).flatten(0, 1))
    return logits.reshape(len(noise), len(x), -1)


def smoothed_log_probs(logits: Tensor) -> Tensor:
    """``log((1/m) Σ softmax(logits_i))`` over the copies in front; finite wherever the logits are."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


class AttackLimits(TypedDict):
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


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    epsilon: float,
    steps: int,
    step_size: float | None = None,
    clip: bool = True,
    gradient_free: bool = False,
) -> Tensor:
    """The last point of :func:`pgd_path` within ``epsilon`` of ``x``; published step size: 2ε/steps.

    ``epsilon`` 0 gives ``x`` back without a pass.
    """
    check_not_negative("epsilon", epsilon)
    check_count("steps", steps)
    if epsilon == 0:
        return x.detach()
    size = 2 * epsilon / steps if step_size is None else step_size
    how = {"clip": clip, "gradient_free": gradient_free}
    return pgd_path(model, x, y, noise, steps=steps, step_size=size, max_norm=epsilon, **how)[-1]


def pgd_path(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    noise: Tensor,
    *,
    steps: int,
    step_size: float,
    max_norm: float | None = None,
    clip: bool = True,
    gradient_free: bool = False,
) -> list[Tensor]:
    """The ``steps`` points of normalised ascent on ``−log((1/m) Σ F_y(x'+δ_i))`` from ``x``, ``x`` left out.

    Every step goes ``step_size`` along the normalised gradient (nowhere if that is zero), then back into
    [0, 1] if ``clip`` and the ball of radius ``max_norm`` if given. ``gradient_free`` estimates the
    direction from the values at the noise copies instead, which takes several of them to mean anything.

    Cost: ``steps`` forward passes of all copies, and as many backward passes to the inputs unless
    ``gradient_free``. The weights take no part: neither graph nor ``.grad`` is made for them.
    """
    check_count("steps", steps)
    check_positive("step_size", step_size)
    check_clippable(x, clip)
    x = x.detach()
    points = [x]
    with at_rest(model):
        for _ in range(steps):
            if gradient_free:
                direction = stein_direction(model, points[-1], y, noise)
            else:
                direction = loss_gradient(model, points[-1], y, noise)[0]
            points.append(stay_near(points[-1] + step_size * unit(direction), x, max_norm, clip))
    return points[1:]


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
            step_size = 0.01 + 0.99 * (1 + math.cos(math.pi * step / steps)) / 2
            moved = point - x + step_size * unit(gradient)
            point = stay_near(x + rescale(moved, norm), x, epsilon, clip)
    return best.where(for_each_example(smallest < float("inf"), x), point)


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
            flips = torch.randint(0, 2, x.shape[1:], generator=torch.Generator().manual_seed(step))
            copies = noise * flips.mul_(2).sub_(1).to(x)
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
    right = []
    for some in torch.split(copies, max(1, _ROWS // len(x))):
        labels = model((x + some * for_each_example(width, x)).flatten(0, 1)).argmax(-1)
        right.append((labels.reshape(len(some), len(x)) == y).to(x.dtype))
    return torch.cat(right)
