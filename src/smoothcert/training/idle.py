"""Settings that do nothing: what a plan has that never shows within its epochs."""

from __future__ import annotations

from collections.abc import Collection

from smoothcert.errors import InvalidValueError
from smoothcert.training.plan import TrainPlan
from smoothcert.training.ramps import Ramp

_OF_STEPS = ("step_epochs", "step_factor", "milestones")
_OF_EXAMPLES = (
    "sigma_warmup",
    "sigma_lr",
    "sigma_samples",
    "sigma_steps",
    "sigma_training_mode",
    "sigma_factor",
)


def check_learns(plan: TrainPlan) -> None:
    """Refuse a plan whose ramp keeps all noise, or every step, from its training.

    A ramp goes one way from its start to its value: what is 0 in the first and the last epoch is 0 throughout.
    """
    first, last = plan.at(0), plan.at(plan.epochs - 1)
    for name, ramped in (("sigma", (first.sigma, last.sigma)), ("lr", (first.lr, last.lr))):
        value = getattr(plan, name)
        if value > 0 and not any(ramped):
            (ramp,) = (each for each in plan.ramps if each.knob == name)
            lost = "nothing would be trained with noise" if name == "sigma" else "no weight would move"
            raise InvalidValueError(
                f"ramp {ramp} keeps {name} at 0 in all {plan.epochs} epochs, so that {lost}: let it begin before, or "
                f"train for more than {ramp.after} epochs"
            )


def without_effect(plan: TrainPlan, typed: Collection[str]) -> list[str]:
    """A sentence for each of the ``typed`` fields that does nothing, or doesn't get where it should.

    Fields that nobody typed say nothing: a recipe shortened by ``--epochs`` keeps its own. Nor does ``step_epochs``
    beyond the epochs, which is how one asks for a rate that never drops.
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
    if (name == "nesterov" and plan.optimizer != "sgd") or (
        name == "momentum" and plan.optimizer == "adadelta"
    ):
        return f"with --optimizer {plan.optimizer}"
    return None


def _of_ramp(ramp: Ramp, plan: TrainPlan) -> str | None:
    if ramp.after >= plan.epochs:
        return f"--ramp {ramp} never begins in {plan.epochs} epochs: {ramp.knob} stays at {ramp.start:g} throughout"
    if ramp.after + ramp.epochs > plan.epochs:
        part = plan.epochs - ramp.after
        return (
            f"--ramp {ramp} doesn't end within {plan.epochs} epochs: {ramp.knob} goes {part} of {ramp.epochs} steps "
            "of its way"
        )
    if ramp.after == 0 and ramp.epochs <= 1:
        return f"--ramp {ramp} has no effect: {ramp.knob} has its value from the first epoch on"
    return None
