"""``python -m benchmarks.training_loop``: inputs a second of ``train``, over a bare loop of the same network and batch.

The bare loop is what anybody writes first: eager, usual memory layout, Gaussian noise by ``randn_like``, batches taken
from a tensor that lies in memory, SGD with Nesterov momentum; it reads no loss, validates nothing and checks nothing.
Ours is whole epochs of ``train``: reading, shuffling, noise streams, checks of loss and weights, validation. A second
bare loop, channels last, says what the layout alone gives. Processor time is counted, so other work on the machine
disturbs little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import nn

from benchmarks.figures import Figure, show, write_json
from benchmarks.interleave import Ratio
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.datasets.base import Dataset
from smoothcert.training import TrainPlan, train

NETWORKS = {"lenet": (1, 28, 28), "cifar_resnet20": (3, 32, 32)}
SIGMA, LR = 0.5, 1e-4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_loop", description=main.__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="lenet")
    parser.add_argument("--inputs", type=int, default=5120, help="inputs of an epoch")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--json", type=Path, help="also write the numbers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    bench = _Bench(options.network, options.inputs, options.batch_size)
    contenders: dict[str, Callable[[], None]] = {
        "bare": bench.bare(torch.contiguous_format),
        "bare, channels last": bench.bare(torch.channels_last),
        "train": bench.train,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-1, options.repeats):
        for name, contender in contenders.items():
            used = time.process_time()
            contender()
            if number >= 0:
                seconds[name].append(time.process_time() - used)
    figures = [
        Figure(
            "loop",
            options.network,
            f"{name} / bare",
            Ratio.of([bare / taken for bare, taken in zip(seconds["bare"], seconds[name])]),
            target=1.15 if name == "train" else None,
        )
        for name in ("bare, channels last", "train")
    ]
    show(figures, Console(width=120))
    if options.json is not None:
        write_json(figures, options.json, "python -m benchmarks.training_loop")


class _Bench:
    def __init__(self, network: str, inputs: int, batch: int) -> None:
        self._network, self._batch, self._shape = network, batch, NETWORKS[network]
        drawn = np.random.default_rng(0)
        x = drawn.integers(0, 256, (inputs, *self._shape), dtype=np.uint8)
        y = drawn.integers(0, 10, inputs)
        self._data = Dataset("random", x, y, tuple("0123456789"), scale=1 / 255)
        self._x, self._y = torch.from_numpy(x).float() / 255, torch.from_numpy(y)

    def _model(self) -> nn.Module:
        return initialise(ModelSpec(self._network, self._shape, tuple("0123456789")), seed=0).train()

    def bare(self, layout: torch.memory_format) -> Callable[[], None]:
        """One epoch of a bare loop."""
        model = self._model().to(memory_format=layout)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(model.parameters(), LR, 0.9, weight_decay=1e-4, nesterov=True)

        def epoch() -> None:
            order = torch.randperm(len(self._x))
            for start in range(0, len(order), self._batch):
                chosen = order[start : start + self._batch]
                x = self._x[chosen].contiguous(memory_format=layout)
                optimizer.zero_grad(set_to_none=True)
                noisy = x + SIGMA * torch.randn_like(x)
                nn.functional.cross_entropy(model(noisy), self._y[chosen]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

        return epoch

    def train(self) -> None:
        """One epoch as ``smoothcert train`` runs it."""
        plan = TrainPlan(SIGMA, batch_size=self._batch, epochs=1, lr=LR)
        train(self._model(), self._data, plan)


if __name__ == "__main__":
    main()
