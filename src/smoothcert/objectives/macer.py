"""MACER: maximising the certified radius without attacks (Zhai et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.objectives.base import OBJECTIVES, BatchNoise, Objective, noise_copies
from smoothcert.perturb.gaussian import Gaussian

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@OBJECTIVES.register("macer")
@dataclass(frozen=True)
class Macer(Objective):
    """Cross-entropy of the soft-smoothed classifier, and a hinge on the radius of inputs it gets right.

    ``−log ẑ_y + (λσ/2)·max(γ − ξ̂, 0)·1[ĝ(x) = y]`` with ``ξ̂ = Φ⁻¹(ẑ_y) − Φ⁻¹(max_{c≠y} ẑ_c)``, ẑ the mean
    softmax over ``copies`` draws. In the hinge, its indicator included, the logits are multiplied by ``beta``.

    A batch is counted in inputs, whatever the number of copies, as in the paper. At the start of training, when the
    network answers one class for nearly everything, the hinge rewards that class: with few inputs a step, or at
    once at a high learning rate, it can hold the network there.

    Published: 64 inputs a step, 16 copies, γ = 8, β = 16; λ = 16 for MNIST, 12 and 4 for CIFAR-10 at σ = 0.25
    and 0.5, and at σ = 1.0 none before the first drop of the learning rate and 12 after it (a ramp of ``lam``).
    SmoothMix's MNIST runs: 256 inputs, λ = 16 (6 at σ = 1.0), likewise from the first drop on.
    """

    paper: ClassVar[str] = "Zhai et al., 2020"
    batch_counts_inputs: ClassVar[bool] = True

    lam: float = knob(16.0, "weight of the hinge on the radius; 0 leaves it out")
    gamma: float = knob(8.0, "the hinge is 0 beyond this gap")
    beta: float = knob(16.0, "inverse temperature of the softmax in the hinge")
    copies: int = knob(16, "noise draws for each input")

    def __post_init__(self) -> None:
        check_not_negative("lam", self.lam)
        check_positive("gamma", self.gamma)
        check_positive("beta", self.beta)
        check_count("copies", self.copies)

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """Mean over the batch."""
        from torch import Tensor
        from torch.nn import functional as F

        from smoothcert.attacks import noisy_logits, smoothed_log_probs

        logits = noisy_logits(model, x, noise_copies(x, noise, self.copies, generator))
        classification = F.nll_loss(smoothed_log_probs(logits), y)
        if self.lam == 0:
            return classification
        if noise.kind is not Gaussian:
            raise InvalidValueError(
                "macer's hinge is on the ℓ2 radius under Gaussian noise: train it with Gaussian noise, or with "
                "another objective"
            )
        scale = noise.sigma.to(logits) if isinstance(noise.sigma, Tensor) else noise.sigma
        hinge = self._hinge(smoothed_log_probs(self.beta * logits), y)
        return classification + self.lam / 2 * (scale * hinge).mean()

    def _hinge(self, log_probs: Tensor, y: Tensor) -> Tensor:
        from torch.nn import functional as F

        label = F.one_hot(y, log_probs.shape[1]).bool()
        rivals = log_probs.masked_fill(label, float("-inf"))
        # Φ⁻¹(ẑ_y) as −Φ⁻¹(1 − ẑ_y), with 1 − ẑ_y summed from its parts: near 1, ẑ_y itself has lost the digits
        # that the hinge is about.
        gap = -_quantile(rivals.logsumexp(1)) - _quantile(rivals.amax(1))
        right = log_probs.gather(1, y.unsqueeze(1)).squeeze(1) >= rivals.amax(1)
        return (self.gamma - gap).relu().where(right, 0)


def _quantile(log_prob: Tensor) -> Tensor:
    """Φ⁻¹ of a probability given by its logarithm, kept as far inside (0, 1) as the number type allows.

    The lower limit lies where Φ⁻¹ < −12, far beyond any gap below γ; the upper one can only be met by inputs
    that are wrong, which the hinge leaves out.
    """
    import torch

    limits = torch.finfo(log_prob.dtype)
    quantile: Tensor = torch.special.ndtri(log_prob.exp().clamp(limits.tiny, 1 - limits.eps))
    return quantile
