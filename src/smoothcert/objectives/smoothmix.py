"""SmoothMix: mixing inputs with their unrestricted adversaries (Jeong et al., 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothcert.errors import check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.objectives import base

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@base.OBJECTIVES.register("smoothmix")
@dataclass(frozen=True)
class SmoothMix(base.Objective):
    """Gaussian training, plus predictions that fade to uniform on the way to an adversary.

    ``mean_i CE(F(x+δ_i), y) + η·mean_i KL(y_mix ‖ F(x_mix+δ_i))`` with ``x_mix = (1−λ)x + λx̃`` and
    ``y_mix = (1−λ)F̂(x) + λ/C``, λ ~ U[0, ½] for each input, F̂ the mean softmax over ``copies`` draws, and x̃ what
    ``steps`` normalised steps of size ``alpha`` up ``−log F̂_y`` reach. With ``one_step``, the first step's
    point, kept within ``one_step_norm`` (None: ``alpha``), takes the place of x. ``max_norm`` limits ‖x̃−x‖₂.

    Two options are the released recipe's, not the paper's: ``only_correct`` drops the mix loss of inputs that F̂
    gets wrong, ``clip`` keeps adversaries in [0, 1]. So is KL where the paper may be read as
    cross-entropy; it is differentiated through y_mix. The model is attacked in eval mode.

    Published: η = 1 or 5, α = 1, 4 copies and 2, 4, 8 steps at σ = 0.25, 0.5, 1.0 for MNIST; η = 5, 4 steps, 2
    copies, α = 0.5, 1, 2 for CIFAR-10; 1 step, 1 copy, α = 8, ``one_step`` within norm 1 for ImageNet. η and
    the one-step norm ramp up over 10 epochs.
    """

    paper: ClassVar[str] = "Jeong et al., 2021"

    eta: float = knob(5.0, "weight of the mix loss")
    steps: int = knob(4, "steps of the attack")
    alpha: float = knob(1.0, "size of a step")
    copies: int = knob(4, "noise draws for each input")
    one_step: bool = knob(False, "train at the first step's point instead of the input")
    one_step_norm: float | None = knob(None, "largest ℓ2 distance of that point (none: alpha)")
    max_norm: float | None = knob(None, "largest ℓ2 norm of a perturbation (none: no limit)")
    only_correct: bool = knob(True, "mix only inputs that are classified correctly")
    clip: bool = knob(True, "keep adversaries in [0, 1]")

    def __post_init__(self) -> None:
        check_not_negative("eta", self.eta)
        check_count("steps", self.steps)
        check_positive("alpha", self.alpha)
        check_count("copies", self.copies)
        if self.one_step_norm is not None:
            check_not_negative("one_step_norm", self.one_step_norm)
        if self.max_norm is not None:
            check_positive("max_norm", self.max_norm)

    def passes(self) -> base.StepCost:
        """The attack's steps, then the inputs and their mixtures in a pass each."""
        return base.StepCost(self.copies, self.steps, self.steps, training=2)

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: base.BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """Mean over the batch and the copies."""
        import torch
        from torch.nn import functional as F

        from smoothcert.attacks import for_each_example, noisy_logits, pgd_path, smoothed_log_probs, stay_near

        drawn = base.noise_copies(x, noise, self.copies, generator)
        # λ ~ U[0, ½) for each input
        ratio = (
            torch.rand(len(x), generator=generator, device=generator.device, dtype=x.dtype).to(x.device) / 2
        )
        path = pgd_path(
            model, x, y, drawn, steps=self.steps, step_size=self.alpha, max_norm=self.max_norm, clip=self.clip
        )
        start = x
        if self.one_step:
            limit = self.alpha if self.one_step_norm is None else self.one_step_norm
            start = stay_near(path[0], x, limit, self.clip)
        logits = noisy_logits(model, start, drawn)
        natural = F.cross_entropy(logits.flatten(0, 1), y.repeat(self.copies))
        smoothed = smoothed_log_probs(logits)
        # A pass of its own, as in the released recipe: batch statistics don't mix the two kinds of input.
        mixed = torch.lerp(start, path[-1], for_each_example(ratio, x))
        mixed_log_probs = noisy_logits(model, mixed, drawn).log_softmax(-1)
        divergence = base.kl_divergence(_fade_to_uniform(smoothed, ratio), mixed_log_probs)
        if self.only_correct:
            divergence = divergence * (smoothed.argmax(1) == y)
        return natural + self.eta * divergence.mean()


def _fade_to_uniform(log_probs: Tensor, ratio: Tensor) -> Tensor:
    """``log((1−λ)p + λ/C)`` from log p."""
    import torch

    ratio = ratio.unsqueeze(1)
    return torch.logaddexp(torch.log1p(-ratio) + log_probs, ratio.log() - math.log(log_probs.shape[1]))
