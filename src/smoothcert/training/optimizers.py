"""The optimisers that the papers' models were trained with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adadelta, Adam, Optimizer

from smoothcert.training.plan import TrainPlan


def make_optimizer(parameters: Iterable[nn.Parameter], plan: TrainPlan) -> Optimizer:
    """The plan's optimiser; its state dict is all that a later process needs to go on exactly."""
    inside = 0.0 if plan.decoupled_decay else plan.weight_decay
    made: Optimizer
    if plan.optimizer == "adam":
        made = Adam(parameters, plan.lr, (plan.momentum, 0.999), weight_decay=inside)
    elif plan.optimizer == "adadelta":
        made = Adadelta(parameters, plan.lr, weight_decay=inside)
    else:
        made = SGD(parameters, plan.lr, plan.momentum, weight_decay=inside, nesterov=plan.nesterov)
    if plan.decoupled_decay and plan.weight_decay:
        made.register_step_pre_hook(_Shrink(plan.weight_decay))
    return made


class _Shrink:
    """Weight decay apart from the gradient: before a step, weights shrink by the rate times ``decay``.

    As a hook it runs with the steps that are taken, not with those that a loss scaler leaves out.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay

    @torch.no_grad()
    def __call__(self, optimizer: Optimizer, _arguments: Any, _keywords: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * self._decay)
