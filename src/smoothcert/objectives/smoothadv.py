"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from smoothcert.errors import check_count, check_not_negative, check_positive, check_probability
from smoothcert.knobs import knob
from smoothcert.objectives.base import OBJECTIVES, BatchNoise, Objective, StepCost, noise_copies
from smoothcert.registry import check_name

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Attack = Literal["pgd", "ddn", "gradient-free"]


@OBJECTIVES.register("smoothadv")
@dataclass(frozen=True)
class SmoothAdv(Objective):
    """Cross-entropy at noisy adversaries of the soft-smoothed classifier.

    x̂ maximises ``−log((1/m) Σ F_y(x'+δ_i))`` over ``‖x'−x‖₂ ≤ epsilon``; the loss is
    ``mean_i CE(F(x̂+δ_i), y)`` with the same ``copies`` draws δ_i, x̂ taken as fixed. ``gradient-free`` is PGD
    along a direction estimated from the values at the draws. The model is attacked in eval mode.

    Published: PGD or DDN (γ = 0.05, starting at norm 1) with 10 steps, ε = 1 (2 for CIFAR-10 from σ = 0.5),
    4 copies for MNIST and 8 for CIFAR-10; ε ramps up over the first 10 epochs.
    """

    paper: ClassVar[str] = "Salman et al., 2019"

    attack: Attack = knob("pgd", "how adversaries are found")
    epsilon: float = knob(1.0, "largest ℓ2 norm of a perturbation")
    steps: int = knob(10, "steps of the attack")
    copies: int = knob(4, "noise draws for each input")
    ddn_gamma: float = knob(0.05, "share by which DDN changes the norm in a step")
    ddn_start_norm: float = knob(1.0, "norm that DDN starts with")
    clip: bool = knob(True, "keep adversaries in [0, 1]")

    def __post_init__(self) -> None:
        check_name("attack", self.attack, get_args(Attack))
        check_not_negative("epsilon", self.epsilon)
        check_count("steps", self.steps)
        # One draw has one direction, whatever the values there.
        check_count("copies", self.copies, least=2 if self.attack == "gradient-free" else 1)
        check_probability("ddn_gamma", self.ddn_gamma)
        check_positive("ddn_start_norm", self.ddn_start_norm)

    def passes(self) -> StepCost:
        """One pass forward and one back to the inputs in each step of the attack; none at ε = 0."""
        steps = self.steps if self.epsilon > 0 else 0
        return StepCost(self.copies, steps, 0 if self.attack == "gradient-free" else steps)

    def loss(
        self, model: nn.Module, x: Tensor, y: Tensor, noise: BatchNoise, generator: torch.Generator
    ) -> Tensor:
        """Mean over the batch and the copies."""
        from torch.nn import functional as F

        from smoothcert import attacks

        drawn = noise_copies(x, noise, self.copies, generator)
        limits: attacks.AttackLimits = {"epsilon": self.epsilon, "steps": self.steps, "clip": self.clip}
        adversaries = (
            attacks.ddn(model, x, y, drawn, **limits, gamma=self.ddn_gamma, start_norm=self.ddn_start_norm)
            if self.attack == "ddn"
            else attacks.pgd(model, x, y, drawn, **limits, gradient_free=self.attack == "gradient-free")
        )
        logits = attacks.noisy_logits(model, adversaries, drawn)
        return F.cross_entropy(logits.flatten(0, 1), y.repeat(self.copies))
