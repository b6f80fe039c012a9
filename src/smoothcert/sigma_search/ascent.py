"""The papers' objective for σ and its gradient: one step's worth, shared by certification and training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise import DEFAULT_NOISE, NOISES

CLAMP = (0.02, 0.98)
"""Alfarra et al. keep both means inside before Φ⁻¹, where it is steep."""


def soft_radius(noise: str, sigma: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The radius from means of the two classes ahead: σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)), or λ(E_A − E_B) for uniform noise."""
    kind = NOISES[noise]
    if kind.steep:
        first, second = first.clamp(*CLAMP), second.clamp(*CLAMP)
    radius: Tensor = kind.semi_axis * sigma * kind.soft_gap(first, second)
    return radius


def leading_means(model: nn.Module, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """The mean softmax of the two classes ahead, over samples of shape (n, inputs, …)."""
    logits = model(noisy.flatten(0, 1))
    if not logits.requires_grad:
        raise ModelError("no gradient runs from the model's outputs to its inputs")
    means = logits.reshape(*noisy.shape[:2], -1).softmax(-1).mean(0)
    first, second = means.topk(2, dim=1).values.unbind(1)
    return first, second


def radius_gradient(
    model: nn.Module, x: Tensor, unit: Tensor, sigma: Tensor, noise: str = DEFAULT_NOISE
) -> tuple[Tensor, Tensor]:
    """(R, dR/dσ) of each input at its own σ over the samples x + σ·unit (Alfarra et al. 2020, Algorithm 1).

    ``unit`` is noise of standard deviation 1 with the samples in front: (n, inputs, …). The weights take no part
    if they need no gradient. Cost: one forward pass of n rows for each input and one backward pass to them.
    """
    if unit.shape[1:] != x.shape:
        raise InvalidValueError(
            f"unit noise must have the shape (n, *{tuple(x.shape)}), got {tuple(unit.shape)}"
        )
    with torch.enable_grad():
        point = sigma.detach().to(x.dtype).requires_grad_()
        noisy = x + unit * point.reshape(-1, *[1] * (x.ndim - 1))
        radius = soft_radius(noise, point, *leading_means(model, noisy))
        # Inputs don't share terms, so the gradient of the sum holds each one's own.
        (gradient,) = torch.autograd.grad(radius.sum(), point)
    return radius.detach(), gradient
