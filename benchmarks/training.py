"""What training costs: a step of each objective beside gaussian's, and ``train`` beside a bare loop.

``python -m benchmarks.training step`` and ``python -m benchmarks.training loop``. Contenders take turns, in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import Rounds, Spread, command_line, interleave, show, speedup
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.attacks import at_rest
from smoothcert.datasets.base import Dataset
from smoothcert.objectives import BatchNoise, Objective
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.objectives.stability import Stability
from smoothcert.training.loop import train
from smoothcert.training.plan import Precision, TrainPlan

OBJECTIVES: dict[str, Objective] = {
    "gaussian": GaussianAugmentation(),
    "stability": Stability(),
    "consistency": Consistency(),
    "macer": Macer(),
    "smoothmix": SmoothMix(),
    "smoothmix one-step": SmoothMix(one_step=True),
    "smoothadv pgd": SmoothAdv(),
    "smoothadv ddn": SmoothAdv(attack="ddn"),
    "smoothadv gradient-free": SmoothAdv(attack="gradient-free"),
}
SHAPES = {"lenet": (1, 28, 28), "cifar_resnet20": (3, 32, 32)}
SIGMA, LR, TURN_SECONDS = 0.5, 1e-4, 0.25

app = command_line("training", __doc__)


@app.command
def step(*, inputs: int = 32, repeats: int = 7) -> None:
    """A step of each objective with the published MNIST options, on LeNet, as a ratio to gaussian's.

    A step takes as many inputs for every objective (not rows, as in training). "Expected" adds up the passes that it
    should take, each kind measured by itself in the same rounds at the same number of rows, and one step of the
    optimizer: what is measured beyond it is noise, attack arithmetic and waste.
    """
    torch.set_num_threads(1)
    model = _model("lenet")
    optimizer = torch.optim.SGD(model.parameters(), 1e-6, 0.9, weight_decay=1e-4, nesterov=True)
    contenders = {name: _step(objective, model, optimizer, inputs) for name, objective in OBJECTIVES.items()}
    contenders["optimizer"] = optimizer.step
    for rows in {objective.passes().rows * inputs for objective in OBJECTIVES.values()}:
        contenders |= _passes(model, rows)
    timed = {name: _for_a_while(contender) for name, contender in contenders.items()}
    rounds = interleave(timed, repeats)
    table = [
        [name, speedup(rounds, "gaussian", name), *_expected(rounds, objective, inputs)]
        for name, objective in OBJECTIVES.items()
    ]
    show(["objective", "seconds / gaussian's", "expected", "passes"], table)


def _model(name: str) -> nn.Module:
    return initialise(ModelSpec(name, SHAPES[name], tuple("0123456789")), seed=0).train()


def _batch(size: int, noise: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(size, 1, 28, 28, generator=noise), torch.arange(size) % 10


def _step(
    objective: Objective, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: int
) -> Callable[[], object]:
    """One whole step: noise, loss, backward, optimizer."""
    noise = torch.Generator().manual_seed(0)
    x, y = _batch(inputs, noise)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        objective.loss(model, x, y, BatchNoise(SIGMA), noise).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _passes(model: nn.Module, rows: int) -> dict[str, Callable[[], object]]:
    """A pass of each kind, by itself."""
    x, y = _batch(rows, torch.Generator().manual_seed(0))

    @torch.no_grad()
    def forward() -> None:
        model(x)

    def to_inputs() -> None:
        with at_rest(model):
            point = x.clone().requires_grad_()
            torch.autograd.grad(nn.functional.cross_entropy(model(point), y), point)

    def to_weights() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]

    return {f"forward {rows}": forward, f"to inputs {rows}": to_inputs, f"to weights {rows}": to_weights}


def _for_a_while(contender: Callable[[], object]) -> Callable[[], int]:
    """A turn long enough to be timed; returns how often the contender ran."""

    def turn() -> int:
        began, times = time.perf_counter(), 0
        while time.perf_counter() - began < TURN_SECONDS:
            contender()
            times += 1
        return times

    return turn


def _expected(rounds: Rounds, objective: Objective, inputs: int) -> tuple[str, str]:
    passes = objective.passes()
    rows = passes.rows * inputs
    kinds = (
        (f"forward {rows}", passes.attack_forward - passes.attack_backward),
        (f"to inputs {rows}", passes.attack_backward),
        (f"to weights {rows}", passes.training),
        ("optimizer", 1),
    )
    ratios = [
        sum(times / rounds[kind][k].rate for kind, times in kinds) * gaussian.rate
        for k, gaussian in enumerate(rounds["gaussian"])
    ]
    attack = f"{passes.attack_forward} + {passes.attack_backward} attack"
    training = f"{passes.training} + {passes.training} training passes of {passes.rows} rows"
    return f"{Spread.range(ratios).median:.2f}", f"{attack}, {training}"


@app.command
def loop(*, network: str = "lenet", inputs: int = 5120, batch_size: int = 256, repeats: int = 5) -> None:
    """Inputs a second of ``train``, over a bare loop of the same network and batch, in processor time.

    The bare loop is the obvious one: eager, usual memory layout, Gaussian noise by ``randn_like``, batches taken from a
    tensor in memory, SGD with Nesterov momentum; it reads no loss, validates nothing and checks nothing. ``train`` runs
    whole epochs: reading, shuffling, noise streams, checks of loss and weights, validation. A second bare loop,
    channels last, says what the layout alone gives. The target is 1.5 for LeNet and 1.25 for ResNet-20.
    """
    torch.set_num_threads(1)
    drawn, shape = np.random.default_rng(0), SHAPES[network]
    x = drawn.integers(0, 256, (inputs, *shape), dtype=np.uint8)
    y = drawn.integers(0, 10, inputs)
    data = Dataset("random", x, y, tuple("0123456789"), scale=1 / 255)
    in_memory = torch.from_numpy(x).float() / 255, torch.from_numpy(y)

    def trained(precision: Precision) -> int:
        plan = TrainPlan(SIGMA, batch_size=batch_size, epochs=1, lr=LR, precision=precision)
        train(_model(network), data, plan)
        return inputs

    contenders = {
        "bare": _bare_epoch(_model(network), *in_memory, batch_size, torch.contiguous_format),
        "bare, channels last": _bare_epoch(_model(network), *in_memory, batch_size, torch.channels_last),
        "train": lambda: trained("float32"),
        "train, bfloat16": lambda: trained("bfloat16"),
    }
    rounds = interleave(contenders, repeats, processor_time=True)
    rows = [[network, name, speedup(rounds, name, "bare")] for name in contenders if name != "bare"]
    show(["network", "loop", "inputs a second / bare loop"], rows)


def _bare_epoch(
    model: nn.Module, inputs: Tensor, labels: Tensor, batch: int, layout: torch.memory_format
) -> Callable[[], int]:
    model = model.to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), LR, 0.9, weight_decay=1e-4, nesterov=True)

    def epoch() -> int:
        for chosen in torch.split(torch.randperm(len(inputs)), batch):
            x = inputs[chosen].contiguous(memory_format=layout)
            optimizer.zero_grad(set_to_none=True)
            noisy = x + SIGMA * torch.randn_like(x)
            nn.functional.cross_entropy(model(noisy), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return len(inputs)

    return epoch


if __name__ == "__main__":
    app()
