"""The soft-smoothed classifier over given noise copies: the mean of the softmax."""

from __future__ import annotations

import math

from torch import Tensor, nn

from smoothcert.errors import InvalidValueError


def noisy_logits(model: nn.Module, x: Tensor, noise: Tensor) -> Tensor:
    """Logits at ``x`` plus each of its noise copies, of shape (copies, inputs, classes): one forward pass.

    ``noise`` has the shape of ``x`` with one more dimension in front, the copies.
    """
    if noise.ndim != x.ndim + 1 or noise.shape[1:] != x.shape:
        raise InvalidValueError(
            f"noise must have the shape (copies, *{tuple(x.shape)}), got {tuple(noise.shape)}"
        )
    logits: Tensor = model((x + noise).flatten(0, 1))
    return logits.reshape(len(noise), len(x), -1)


def smoothed_log_probs(logits: Tensor) -> Tensor:
    """``log((1/m) Σ softmax(logits_i))`` over the copies in front; finite wherever the logits are."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
