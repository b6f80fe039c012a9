"""How an adversary is looked for: attacks by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from smoothcert.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from smoothcert.attacks import AttackLimits


class Strategy(Protocol):
    """An attack: points within the limits around each input at which its label should do badly."""

    def __call__(
        self, module: nn.Module, x: Tensor, y: Tensor, noise: Tensor, limits: AttackLimits, /
    ) -> list[Tensor]:
        """One or more batches of candidates, each with a candidate for every input."""
        ...


ATTACKS: Registry[Strategy] = Registry("attack")
BY_GRADIENT, BY_VOTES = "pgd", "nes"
"""What is taken where none is named: for models with gradients, and without."""
NEED_GRADIENTS = frozenset({"ddn", "pgd"})


@ATTACKS.register("pgd")
def _by_gradient(
    module: nn.Module, x: Tensor, y: Tensor, noise: Tensor, limits: AttackLimits
) -> list[Tensor]:
    from smoothcert.attacks import pgd

    return [pgd(module, x, y, noise, **limits)]


@ATTACKS.register("gradient-free")
def _by_values(module: nn.Module, x: Tensor, y: Tensor, noise: Tensor, limits: AttackLimits) -> list[Tensor]:
    """The same ascent along directions estimated from values alone: not fooled by gradients that vanish."""
    from smoothcert.attacks import pgd

    return [pgd(module, x, y, noise, **limits, gradient_free=True)]


@ATTACKS.register("nes")
def _by_votes(module: nn.Module, x: Tensor, y: Tensor, noise: Tensor, limits: AttackLimits) -> list[Tensor]:
    """Ascent along directions that votes alone tell, with wider noise where all of them agree."""
    from smoothcert.attacks import nes

    return [nes(module, x, y, noise, **limits)]


@ATTACKS.register("ddn")
def _by_direction(
    module: nn.Module, x: Tensor, y: Tensor, noise: Tensor, limits: AttackLimits
) -> list[Tensor]:
    """The smallest adversary found, and the point at the full radius in its direction.

    The smallest one sits on the decision boundary, where no vote is significant. Where DDN sees nothing to do
    (the copies are fooled already), the direction is the gradient's.
    """
    from smoothcert.attacks import ddn, for_each_example, loss_gradient, norms, rescale, stay_near

    radius = limits["epsilon"]
    smallest = ddn(module, x, y, noise, **limits)
    way = smallest - x
    unmoved = norms(way) == 0
    if bool(unmoved.any()):
        way = loss_gradient(module, x, y, noise)[0].where(for_each_example(unmoved, x), way)
    full = x + rescale(way, x.new_full((len(x),), radius))
    return [smallest, stay_near(full, x, radius, limits["clip"])]


def margins(module: nn.Module, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """How far the label's smoothed log-probability is ahead of its strongest rival's."""
    import torch

    from smoothcert.attacks import noisy_logits, smoothed_log_probs

    with torch.no_grad():
        log_probs = smoothed_log_probs(noisy_logits(module, x, noise))
    of_label = log_probs.gather(1, y[:, None]).squeeze(1)
    return of_label - log_probs.scatter(1, y[:, None], -math.inf).amax(1)
