"""Everything that decides what a training run computes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.knobs import knob
from smoothcert.noise import NOISES
from smoothcert.objectives import Objective, objective_name
from smoothcert.objectives.base import BatchNoise, Scale
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.registry import check_name, unknown_name
from smoothcert.training.ramps import Ramp

Schedule = Literal["step", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
OptimizerName = Literal["sgd", "adam", "adadelta"]


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
    ``sigma`` or any number among the objective's knobs.
    """

    sigma: float = field(metadata={"help": "standard deviation of the noise, in input units; 0: no noise"})
    objective: Objective = field(default_factory=Gaussian)
    noise: str = knob(
        "gaussian",
        "kind of noise: gaussian for ℓ2 certificates, uniform for ℓ1",
        choices=("smoothcert.noise", "NOISES"),
    )
    epochs: int = knob(90, "passes over the data")
    batch_size: int = knob(
        256, "rows per step, so that m noise copies mean 1/m as many inputs; for macer, inputs per step"
    )
    optimizer: OptimizerName = knob("sgd", "what makes steps of gradients")
    lr: float = knob(0.01, "learning rate")
    momentum: float = knob(0.9, "momentum of sgd, β₁ of adam")
    nesterov: bool = knob(True, "sgd: Nesterov's momentum instead of plain momentum")
    weight_decay: float = knob(1e-4, "weight decay")
    decoupled_decay: bool = knob(
        False, "weight decay apart from the gradient (adam: AdamW) instead of added to it"
    )
    schedule: Schedule = knob(
        "step", "step: × step_factor at intervals or milestones; cosine: down towards 0"
    )
    step_epochs: int = knob(30, "epochs between steps of the schedule")
    step_factor: float = knob(0.1, "what a step of the schedule multiplies the rate by")
    milestones: tuple[int, ...] = knob(
        (), "epochs after which the step schedule drops (instead of intervals)"
    )
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
        None, "data-dependent: epochs at one σ before (default: a quarter; none with --from)"
    )
    sigma_lr: float = knob(1e-4, "data-dependent: step size of σ")
    sigma_samples: int = knob(1, "data-dependent: samples for a step of σ")
    sigma_steps: int = knob(1, "data-dependent: steps of σ in each batch")
    sigma_training_mode: bool = knob(
        False, "data-dependent: σ steps see the model in training mode, as in the released code, not at rest"
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
        if not 0 < self.momentum < 1:
            raise InvalidValueError(f"momentum must lie strictly between 0 and 1, got {self.momentum}")
        if not 0 < self.step_factor < 1:
            raise InvalidValueError(f"step_factor must lie strictly between 0 and 1, got {self.step_factor}")
        for name in ("epochs", "batch_size", "step_epochs"):
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
        _check_ramps(self.ramps)
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
        check_count("sigma_samples", self.sigma_samples)
        check_count("sigma_steps", self.sigma_steps)
        if not 1 < self.sigma_factor <= 64:
            raise InvalidValueError(
                f"sigma_factor must lie above 1 and not above 64, got {self.sigma_factor}"
            )
        if self.sigma_warmup is not None:
            check_count("sigma_warmup", self.sigma_warmup, least=0)
        if not self.data_dependent:
            return
        check_positive("sigma of data-dependent training", self.sigma)
        if self.warmup >= self.epochs:
            raise InvalidValueError(
                f"sigma_warmup must be less than the {self.epochs} epochs, got {self.warmup}: no example's σ would move"
            )
        if any(ramp.knob == "sigma" for ramp in self.ramps):
            raise InvalidValueError("sigma can't ramp in data-dependent training: each example has its own")

    def at(self, epoch: int) -> Settings:
        """What holds during ``epoch``, counted from 0."""
        settings = Settings(self._scheduled_rate(epoch), self.sigma, self.objective, self.noise)
        for ramp in self.ramps:
            if ramp.knob == "lr":
                settings = replace(settings, lr=ramp.value(settings.lr, epoch))
            elif ramp.knob == "sigma":
                settings = replace(settings, sigma=ramp.value(settings.sigma, epoch))
            else:
                value = self._ramped_knob(ramp, epoch)
                settings = replace(settings, objective=replace(settings.objective, **{ramp.knob: value}))
        return settings

    def _ramped_knob(self, ramp: Ramp, epoch: int) -> float:
        final = getattr(self.objective, ramp.knob, None)
        if final is None and ramp.knob in {each.name for each in fields(self.objective)}:
            raise InvalidValueError(f"ramp {ramp}: give {ramp.knob} the value to reach")
        known = _number_knobs(self.objective)
        if ramp.knob not in known:
            raise unknown_name("knob to ramp", ramp.knob, ["lr", "sigma", *known])
        assert isinstance(final, (int, float))
        value = ramp.value(final, epoch)
        return max(1, round(value)) if isinstance(final, int) else value

    def _scheduled_rate(self, epoch: int) -> float:
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        if self.milestones:
            return self.lr * self.step_factor ** sum(epoch >= milestone for milestone in self.milestones)
        return self.lr * self.step_factor ** (epoch // self.step_epochs)


def _number_knobs(objective: Objective) -> list[str]:
    # The number of copies can set the size of a batch, which stays the same throughout.
    values = {each.name: getattr(objective, each.name) for each in fields(objective) if each.name != "copies"}
    return [name for name, value in values.items() if type(value) in (int, float)]


def _check_ramps(ramps: tuple[Ramp, ...]) -> None:
    knobs = [ramp.knob for ramp in ramps]
    for ramp in ramps:
        if knobs.count(ramp.knob) > 1:
            raise InvalidValueError(f"ramps must name each knob once, {ramp.knob} has several")
        if ramp.knob in ("lr", "sigma"):
            check_not_negative(f"ramps: the start of {ramp}", ramp.start)
