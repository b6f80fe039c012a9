"""Everything that decides what a training run computes, and which of its settings do nothing."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.objectives.base import BatchNoise, Objective, Scale, objective_name
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.ramps import Ramp, at_epoch
from smoothcert.perturb.base import NOISES
from smoothcert.registry import check_name

Schedule = Literal["step", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
OptimizerName = Literal["sgd", "adam", "adadelta"]

_OF_STEPS = ("step_epochs", "step_factor", "milestones")
_OF_EXAMPLES = (
    "sigma_warmup",
    "sigma_lr",
    "sigma_samples",
    "sigma_steps",
    "sigma_training_mode",
    "sigma_factor",
)


@dataclass(frozen=True)
class Settings:
    """What holds during one epoch."""

    lr: float
    sigma: float
    objective: Objective
    noise: str

    def of(self, sigma: Scale) -> BatchNoise:
        """The plan's kind of noise at a scale, as objectives take it."""
        return BatchNoise(sigma, NOISES[self.noise])


@dataclass(frozen=True)
class TrainPlan:
    """An objective, its noise level, and how its loss is brought down: by default SGD with Nesterov momentum.

    The defaults are the recipe that the papers' MNIST experiments share. Names in ``ramps`` are ``lr``,
    ``sigma`` or any number among the objective's options.
    """

    sigma: float = field(metadata={"help": "standard deviation of the noise, in input units; 0: no noise"})
    objective: Objective = field(default_factory=GaussianAugmentation)
    noise: str = knob(
        "gaussian",
        "kind of noise: gaussian for ℓ2 certificates, uniform for ℓ1",
        choices="smoothcert.perturb.base:NOISES",
    )
    epochs: int = knob(90, "passes over the data")
    batch_size: int = knob(256, "rows per step: m noise copies mean 1/m as many inputs; macer: inputs")
    optimizer: OptimizerName = knob("sgd", "what makes steps of gradients")
    lr: float = knob(0.01, "learning rate")
    momentum: float = knob(0.9, "momentum of sgd, β₁ of adam")
    nesterov: bool = knob(True, "sgd: Nesterov's momentum instead of plain momentum")
    weight_decay: float = knob(1e-4, "weight decay")
    decoupled_decay: bool = knob(False, "weight decay apart from the gradient (adam: AdamW), not added to it")
    schedule: Schedule = knob("step", "step: × step_factor at intervals or milestones; cosine: down to 0")
    step_epochs: int = knob(30, "epochs between steps of the schedule")
    step_factor: float = knob(0.1, "what a step of the schedule multiplies the rate by")
    milestones: tuple[int, ...] = knob((), "epochs after which the step schedule drops (not intervals)")
    ramps: tuple[Ramp, ...] = ()
    flip: bool = knob(False, "augmentation: mirror half of the images")
    shift: int = knob(0, "augmentation: move images by up to this many pixels")
    random_crops: bool = knob(
        False, "augmentation: random parts of the images, made to size (for images kept as files: imagenet)"
    )
    holdout: int = knob(0, "training inputs kept apart for validation (0: validate on the test split)")
    precision: Precision = knob("float32", "numeric type of the network's passes")
    data_dependent: bool = knob(
        False, "a σ for each training example, moved up its radius by each batch (data-dependent smoothing)"
    )
    sigma_warmup: int | None = knob(
        None, "data-dependent: epochs at one σ before (default: a quarter; 0 with --from)"
    )
    sigma_lr: float = knob(1e-4, "data-dependent: step size of σ")
    sigma_samples: int = knob(1, "data-dependent: samples for a step of σ")
    sigma_steps: int = knob(1, "data-dependent: steps of σ in each batch")
    sigma_training_mode: bool = knob(
        False,
        "data-dependent: σ steps see the model in training mode, as in the released code, not in eval mode",
    )
    sigma_factor: float = knob(4.0, "data-dependent: an example's σ stays within this factor of the plan's")
    shards: int | None = knob(
        None, "parts of a batch, spread over processes, else one after the other (default: one per process)"
    )
    threads: int | None = knob(
        None,
        "threads that share each operation; sums depend on them (default: by the size of the work, 1 if it is small)",
    )
    seed: int = knob(0, "fixes initial weights, order and noise")

    def __post_init__(self) -> None:
        for name in ("sigma", "weight_decay"):
            check_not_negative(name, getattr(self, name))
        check_positive("lr", self.lr)
        for name in ("momentum", "step_factor"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidValueError(f"{name} must lie in (0, 1), got {getattr(self, name)}")
        for name in ("epochs", "batch_size", "step_epochs", "sigma_samples", "sigma_steps"):
            check_count(name, getattr(self, name))
        for name in ("seed", "shift", "holdout"):
            check_count(name, getattr(self, name), least=0)
        for name in ("shards", "threads"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_name("optimizer", self.optimizer, get_args(OptimizerName))
        check_name("schedule", self.schedule, get_args(Schedule))
        check_name("precision", self.precision, get_args(Precision))
        NOISES[self.noise]  # an unknown name is an error that lists the known ones
        for milestone in self.milestones:
            check_count("milestones", milestone)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InvalidValueError(f"milestones must rise, got {list(self.milestones)}")
        if not isinstance(self.objective, Objective):
            raise InvalidValueError(f"objective must be an Objective, got {self.objective!r}")
        if self.inputs_per_step < 1:
            raise InvalidValueError(
                f"batch_size must be at least the {self.objective.draws} noise copies of {self.objective_name}, "
                f"got {self.batch_size}"
            )
        self._check_data_dependent()
        ramped = [ramp.option for ramp in self.ramps]
        for ramp in self.ramps:
            if ramped.count(ramp.option) > 1:
                raise InvalidValueError(f"ramps must name each option once, {ramp.option} has several")
            if ramp.option in ("lr", "sigma"):
                check_not_negative(f"ramps: the start of {ramp}", ramp.start)
        self.at(0)  # so that a ramp of an unknown knob fails now and not when training starts

    @property
    def objective_name(self) -> str:
        """The objective's registered name."""
        return objective_name(self.objective)

    @property
    def inputs_per_step(self) -> int:
        """Inputs in a batch: ``batch_size`` where the objective counts inputs, else its share of the rows."""
        return self.batch_size // (1 if self.objective.batch_counts_inputs else self.objective.draws)

    @property
    def warmup(self) -> int:
        """Epochs before examples get a σ of their own; published: 50 of 200."""
        return self.epochs // 4 if self.sigma_warmup is None else self.sigma_warmup

    def _check_data_dependent(self) -> None:
        check_positive("sigma_lr", self.sigma_lr)
        if not 1 < self.sigma_factor <= 64:
            raise InvalidValueError(f"sigma_factor must be above 1 and at most 64, got {self.sigma_factor}")
        if self.sigma_warmup is not None:
            check_count("sigma_warmup", self.sigma_warmup, least=0)
        if not self.data_dependent:
            return
        check_positive("sigma of data-dependent training", self.sigma)
        if self.warmup >= self.epochs:
            raise InvalidValueError(
                f"sigma_warmup must be less than the {self.epochs} epochs, got {self.warmup}: no example's σ would move"
            )
        if any(ramp.option == "sigma" for ramp in self.ramps):
            raise InvalidValueError("sigma can't ramp in data-dependent training: each example has its own")

    def at(self, epoch: int) -> Settings:
        """What holds during ``epoch``, counted from 0."""
        settings = Settings(self._scheduled_rate(epoch), self.sigma, self.objective, self.noise)
        for ramp in self.ramps:
            if ramp.option == "lr":
                settings = replace(settings, lr=ramp.value(settings.lr, epoch))
            elif ramp.option == "sigma":
                settings = replace(settings, sigma=ramp.value(settings.sigma, epoch))
            else:
                settings = replace(
                    settings, objective=at_epoch(settings.objective, ramp, epoch, ("lr", "sigma"))
                )
        return settings

    def _scheduled_rate(self, epoch: int) -> float:
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.milestones:
            return self.lr * self.step_factor ** sum(epoch >= milestone for milestone in self.milestones)
        return self.lr * self.step_factor ** (epoch // self.step_epochs)


def check_learns(plan: TrainPlan) -> None:
    """Refuse a plan whose ramp keeps all noise, or every step, from its training.

    A ramp goes one way from its start to its value: what is 0 in the first and the last epoch is 0 throughout.
    """
    first, last = plan.at(0), plan.at(plan.epochs - 1)
    for name, ramped in (("sigma", (first.sigma, last.sigma)), ("lr", (first.lr, last.lr))):
        value = getattr(plan, name)
        if value > 0 and not any(ramped):
            (ramp,) = (each for each in plan.ramps if each.option == name)
            lost = "nothing would be trained with noise" if name == "sigma" else "no weight would move"
            raise InvalidValueError(
                f"ramp {ramp} keeps {name} at 0 in all {plan.epochs} epochs, so that {lost}: let it begin before, or "
                f"train for more than {ramp.after} epochs"
            )


def without_effect(plan: TrainPlan, typed: Collection[str]) -> list[str]:
    """A sentence for each of the ``typed`` fields that does nothing, or doesn't get where it should.

    Fields that were not typed cause no warning: a recipe shortened by ``--epochs`` keeps its own. Nor does
    ``step_epochs`` beyond the epochs, which is how one asks for a rate that never drops.
    """
    told = [
        f"--{name.replace('_', '-')} has no effect {reason}"
        for name in (*_OF_STEPS, *_OF_EXAMPLES, "nesterov", "momentum")
        if name in typed and (reason := _overruled(name, plan)) is not None
    ]
    if "milestones" in typed and plan.schedule == "step":
        late = [milestone for milestone in plan.milestones if milestone >= plan.epochs]
        if late:
            after = ", ".join(map(str, late))
            told.append(f"--milestones: the rate doesn't drop after {after} of {plan.epochs} epochs")
    if "ramps" in typed:
        told += [sentence for ramp in plan.ramps if (sentence := _of_ramp(ramp, plan)) is not None]
    return told


def _overruled(name: str, plan: TrainPlan) -> str | None:
    """What keeps a field from being looked at; None where it is."""
    if name in _OF_STEPS and plan.schedule != "step":
        return f"with --schedule {plan.schedule}"
    if name == "step_epochs" and plan.milestones:
        return "beside --milestones, which take its place"
    if name in _OF_EXAMPLES and not plan.data_dependent:
        return "without --data-dependent"
    by_sgd = {"nesterov": ("sgd",), "momentum": ("sgd", "adam")}
    if name in by_sgd and plan.optimizer not in by_sgd[name]:
        return f"with --optimizer {plan.optimizer}"
    return None


def _of_ramp(ramp: Ramp, plan: TrainPlan) -> str | None:
    if ramp.after >= plan.epochs:
        return f"--ramp {ramp} never begins in {plan.epochs} epochs: {ramp.option} stays at {ramp.start:g} throughout"
    if ramp.after + ramp.epochs > plan.epochs:
        goes = f"{ramp.option} goes {plan.epochs - ramp.after} of {ramp.epochs} steps of its way"
        return f"--ramp {ramp} doesn't end within {plan.epochs} epochs: {goes}"
    if ramp.after == 0 and ramp.epochs <= 1:
        return f"--ramp {ramp} has no effect: {ramp.option} has its value from the first epoch on"
    return None
