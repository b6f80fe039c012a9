"""Attacks by name, what is asked of one, and what it found."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from scipy.special import bdtrc

from smoothcert.errors import ModelError, check_count, check_positive, check_probability
from smoothcert.knobs import knob
from smoothcert.registry import Registry, suggesting_fields
from smoothcert.runs.records import Record
from smoothcert.smoothing.plan import TooFewVotesWarning

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


_COPIES, _COPIES_OF_VOTES = 16, 256


@suggesting_fields
@dataclass(frozen=True)
class AttackPlan:
    """What is tried against each input at each radius, and how sure its failure must be.

    The input itself gets ``n`` fresh votes before any attack, as adversaries do. With probability at least 1−``alpha``
    over those votes, an input is called neither wrong nor broken at a point where the smoothed classifier is right, at
    any of its radii.
    """

    attack: str | None = knob(
        None,
        "how adversaries are found: pgd (projected gradients), ddn (direction and norm apart), gradient-free "
        "(directions from scores alone), nes (from votes alone, by any model); default: pgd where the model has "
        "gradients, else nes",
        choices="smoothcert.empirical.results:ATTACKS",
    )
    steps: int = knob(20, "steps of the attack")
    copies: int | None = knob(
        None,
        "noise copies that the attack averages over; more make it stronger and slower (default: 16; 256 without "
        "gradients, where each tells less)",
    )
    restarts: int = knob(
        1,
        "how often it is tried, each time with fresh noise copies; the most promising adversary is voted on",
    )
    n: int = knob(1000, "fresh votes that judge an adversary")
    alpha: float = knob(0.001, "probability that an input is called broken though it isn't")

    def __post_init__(self) -> None:
        if self.attack is not None:
            ATTACKS[self.attack]
        for name in ("steps", "restarts", "n"):
            check_count(name, getattr(self, name))
        if self.copies is not None:
            check_count("copies", self.copies)
        object.__setattr__(self, "alpha", check_probability("alpha", self.alpha))

    def settled(self, name: str, differentiable: bool) -> AttackPlan:
        """The plan with nothing left open; an attack that needs gradients is refused for a model without."""
        attack = self.attack or (BY_GRADIENT if differentiable else BY_VOTES)
        if attack in NEED_GRADIENTS and not differentiable:
            raise ModelError(
                f"{attack} follows gradients, and {name} has none: take {BY_VOTES}, which asks for votes alone, or "
                "leave the attack out"
            )
        copies = self.copies or (_COPIES if attack in NEED_GRADIENTS else _COPIES_OF_VOTES)
        return replace(self, attack=attack, copies=copies)

    def level(self, radii: int, classes: int) -> float:
        """The level of a single test: α shared among the input itself, all its radii, and all rivals of its label."""
        return self.alpha / ((radii + 1) * (classes - 1))

    def warn_if_hopeless(self, level: float) -> None:
        """Say so when not even a unanimous vote could show an input broken."""
        least = math.ceil(-math.log2(level))
        if self.n < least:
            warnings.warn(
                f"no input can be shown broken: n = {self.n} votes can't succeed at level {level:.2g} (alpha = "
                f"{self.alpha:g} over all radii and classes); the smallest n that could is {least}",
                TooFewVotesWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class LinePlan:
    """Normalised steps reach the adversary; votes are cast on the line from the input (0) to it (1)."""

    sigma: float
    steps: int = knob(8, "steps of the attack")
    step_size: float = knob(1.0, "ℓ2 length of a step")
    copies: int = knob(16, "noise copies that the attack averages over")
    points: int = knob(41, "mixing ratios at which votes are cast")
    votes: int = knob(500, "noisy votes at each")
    clip: bool = True
    seed: int = knob(0, "names the random streams")

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("step_size", self.step_size)
        for name in ("steps", "copies", "votes"):
            check_count(name, getattr(self, name))
        check_count("points", self.points, least=2)
        check_count("seed", self.seed, least=0)


@dataclass(frozen=True)
class Break:
    """A point at which ``rival`` got significantly more fresh votes than the label.

    It is at ``distance`` and was looked for closer than ``radius``; both are 0 for the input itself.
    """

    radius: float
    distance: float
    rival: int
    votes: tuple[int, ...]
    p_value: float


@dataclass(frozen=True)
class AttackedInput:
    """What became of one input of the run."""

    record: Record
    broken: Break | None = None

    @property
    def wrong(self) -> bool:
        """Whether it is shown to be wrong as it is: no attack was needed."""
        return self.broken is not None and self.broken.radius == 0

    @property
    def broken_at(self) -> float | None:
        """The smallest radius tried at which it is wrong: 0 if no attack was needed, None if it held."""
        return None if self.broken is None else self.broken.radius

    @property
    def certified_radius(self) -> float:
        """The radius up to which the label is certified; 0 where the run abstained or certified another class."""
        return self.record.radius if self.record.correct else 0.0

    @property
    def contradicts(self) -> bool:
        """Whether it was broken inside the open ball in which the run certifies its label."""
        return self.broken is not None and self.broken.distance < self.certified_radius


@dataclass(frozen=True)
class AttackReport:
    """Every attacked input, and the figures that follow."""

    plan: AttackPlan
    radii: tuple[float, ...]
    inputs: tuple[AttackedInput, ...]
    certificate_alpha: float

    @property
    def wrong(self) -> int:
        """How many inputs are shown to be wrong without any attack."""
        return sum(one.wrong for one in self.inputs)

    def broken(self) -> tuple[int, ...]:
        """At each radius, how many inputs the attack has broken there or at a smaller one."""
        radii = [one.broken.radius for one in self.inputs if one.broken is not None and not one.wrong]
        return tuple(sum(broken <= radius for broken in radii) for radius in self.radii)

    def empirical_accuracy(self) -> tuple[float, ...]:
        """At each radius, the fraction of all inputs that were shown neither wrong nor broken."""
        return tuple(standing / len(self.inputs) for standing in self.standing())

    def standing(self) -> tuple[int, ...]:
        """At each radius, how many inputs were shown neither wrong nor broken."""
        return tuple(len(self.inputs) - self.wrong - broken for broken in self.broken())

    def contradictions(self) -> tuple[AttackedInput, ...]:
        """Inputs broken where they are certified: a certificate or a test has erred."""
        return tuple(attacked for attacked in self.inputs if attacked.contradicts)

    def chance_of_contradictions(self) -> float:
        """A bound of the probability that correct certificates and tests contradict each other so often.

        A certificate errs with probability at most α and a test with probability at most its own, independently
        for each input: the number of contradictions is at most binomial.
        """
        count = len(self.contradictions())
        if count == 0:
            return 1.0
        rate = min(1.0, self.certificate_alpha + self.plan.alpha)
        return float(bdtrc(count - 1, len(self.inputs), rate))


@dataclass(frozen=True)
class AttackProgress:
    """Progress callbacks, all optional."""

    radii: Callable[[int], None] = lambda _: None
    """(how many more pairs of input and radius are settled)"""
    attacked: Callable[[AttackedInput], None] = lambda _: None
