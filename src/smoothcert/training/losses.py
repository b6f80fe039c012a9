"""The losses of an epoch: left on the device, and read together, since reading one makes the host wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

READ_EVERY = 16
"""Losses that an accelerator may be ahead of what was read: a diverged run ends so many steps later at most."""


class _Pending(NamedTuple):
    step: int
    loss: Tensor
    inputs: int


class Losses:
    """Adds up the losses of an epoch. The first is read at once, the others ``every`` so many and at the end.

    Whatever isn't finite is handed to ``refuse`` with the number of its step, which raises. Losses are read in their
    order and summed as Python floats: the mean doesn't depend on when they were read.
    """

    def __init__(self, every: int, refuse: Callable[[int, float], None]) -> None:
        self._every, self._refuse = every, refuse
        self._pending: list[_Pending] = []
        self._step, self._step_total, self._step_inputs = 0, 0.0, 0
        self._total, self._inputs = 0.0, 0
        self.latest = math.nan
        """The mean loss of the last step that is known."""
        self.reads = 0
        """How often the host has waited for the device."""

    @classmethod
    def on(cls, device: torch.device, refuse: Callable[[int, float], None]) -> Losses:
        """As a device needs it: on the CPU nothing waits, and a loss is known before it reaches the weights."""
        return cls(1 if device.type == "cpu" else READ_EVERY, refuse)

    def add(self, step: int, loss: Tensor, inputs: int) -> None:
        """The mean loss over some inputs of a step, steps counted from 1."""
        self._pending.append(_Pending(step, loss.detach(), inputs))
        if len(self._pending) >= self._every or not self.reads:
            self.read()

    def read(self) -> None:
        """Wait for what was computed so far."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self.reads += 1
        values = torch.stack(
            [each.loss.double() for each in pending]
        ).tolist()  # one transfer for all of them
        for (step, _, inputs), value in zip(pending, values):
            if not math.isfinite(value):
                self._refuse(step, value)
            if step != self._step:
                self._end_step()
                self._step = step
            self._step_total += value * inputs
            self._step_inputs += inputs
            self.latest = self._step_total / self._step_inputs

    def sums(self) -> Tensor:
        """The sum over inputs, and their number, once the epoch is over."""
        self.read()
        self._end_step()
        return torch.tensor([self._total, self._inputs], dtype=torch.float64)

    def _end_step(self) -> None:
        if self._step_inputs:
            self._total += self._step_total / self._step_inputs * self._step_inputs
            self._inputs += self._step_inputs
        self._step_total, self._step_inputs = 0.0, 0
