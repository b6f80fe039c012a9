"""``python -m benchmarks.training_cost``: what a step of each objective costs, as a ratio to gaussian's.

LeNet on 28×28 inputs, the published MNIST knobs, one thread. A step takes as many inputs for every objective (not rows,
as in training), so that the ratio can be held against the passes the objective should take. "Expected" adds up those
passes, each kind measured by itself in the same rounds at the same number of rows, and one step of the optimizer:
what is measured beyond it is noise, attack arithmetic and waste.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks.figures import Figure, show, write_json
from benchmarks.interleave import Ratio, Rounds, interleave
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.attacks.steps import at_rest
from smoothcert.objectives import BatchNoise, Objective
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.objectives.stability import Stability

OBJECTIVES: dict[str, Objective] = {
    "gaussian": Gaussian(),
    "stability": Stability(),
    "consistency": Consistency(),
    "macer": Macer(),
    "smoothmix": SmoothMix(),
    "smoothmix one-step": SmoothMix(one_step=True),
    "smoothadv pgd": SmoothAdv(),
    "smoothadv ddn": SmoothAdv(attack="ddn"),
    "smoothadv gradient-free": SmoothAdv(attack="gradient-free"),
}
TURN_SECONDS = 0.25


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_cost", description=main.__doc__)
    parser.add_argument("--inputs", type=int, default=32, help="inputs per step")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", type=Path, help="also write the numbers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    bench = _Bench(options.inputs)
    contenders = {name: bench.step(objective) for name, objective in OBJECTIVES.items()}
    contenders["optimizer"] = bench.optimizer_step
    for rows in {objective.passes().rows * options.inputs for objective in OBJECTIVES.values()}:
        contenders |= bench.unit_passes(rows)
    timed = {name: _for_a_while(contender) for name, contender in contenders.items()}
    rounds = interleave(timed, options.repeats, options.patience)
    figures = [
        Figure("step", "LeNet", name, _ratio(rounds, name), note=_expected(rounds, objective, options.inputs))
        for name, objective in OBJECTIVES.items()
    ]
    show(figures, Console(width=140))
    if options.json is not None:
        write_json(figures, options.json, "python -m benchmarks.training_cost")


def _for_a_while(contender: Callable[[], None]) -> Callable[[], int]:
    """A turn long enough to be timed; returns how often the contender ran."""

    def turn() -> int:
        began, times = time.perf_counter(), 0
        while time.perf_counter() - began < TURN_SECONDS:
            contender()
            times += 1
        return times

    return turn


class _Bench:
    def __init__(self, inputs: int) -> None:
        self._model = initialise(ModelSpec("lenet", (1, 28, 28), tuple("0123456789")), seed=0).train()
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), 1e-6, 0.9, weight_decay=1e-4, nesterov=True
        )
        self._noise = torch.Generator().manual_seed(0)
        self._x, self._y = self._batch(inputs)

    def _batch(self, size: int) -> tuple[Tensor, Tensor]:
        return torch.rand(size, 1, 28, 28, generator=self._noise), torch.arange(size) % 10

    def step(self, objective: Objective) -> Callable[[], None]:
        """One whole step: noise, loss, backward, optimizer."""

        def step() -> None:
            self._optimizer.zero_grad(set_to_none=True)
            objective.loss(self._model, self._x, self._y, BatchNoise(0.5), self._noise).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

        return step

    def optimizer_step(self) -> None:
        """With the gradients that are there."""
        self._optimizer.step()

    def unit_passes(self, rows: int) -> dict[str, Callable[[], None]]:
        """A pass of each kind, by itself."""
        x, y = self._batch(rows)

        @torch.no_grad()
        def forward() -> None:
            self._model(x)

        def to_inputs() -> None:
            with at_rest(self._model):
                point = x.clone().requires_grad_()
                torch.autograd.grad(_loss(self._model, point, y), point)

        def to_weights() -> None:
            for parameter in self._model.parameters():
                parameter.grad = None
            _loss(self._model, x, y).backward()  # type: ignore[no-untyped-call]

        return {
            f"forward {rows}": forward,
            f"to inputs {rows}": to_inputs,
            f"to weights {rows}": to_weights,
        }


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def _ratio(rounds: Rounds, name: str) -> Ratio:
    return Ratio.of([base.rate / turn.rate for base, turn in zip(rounds["gaussian"], rounds[name])])


def _expected(rounds: Rounds, objective: Objective, inputs: int) -> str:
    passes = objective.passes()
    rows = passes.rows * inputs
    kinds = (
        (f"forward {rows}", passes.attack_forward - passes.attack_backward),
        (f"to inputs {rows}", passes.attack_backward),
        (f"to weights {rows}", passes.training),
        ("optimizer", 1),
    )
    ratios = [
        sum(times / rounds[kind][k].rate for kind, times in kinds) * base.rate
        for k, base in enumerate(rounds["gaussian"])
    ]
    return (
        f"expected {Ratio.of(ratios).median:.2f}: {passes.attack_forward} + {passes.attack_backward} attack, "
        f"{passes.training} + {passes.training} training passes of {passes.rows} rows"
    )


if __name__ == "__main__":
    main()
