"""``python -m benchmarks.training_memory``: what a step costs if freed memory goes back to the system, or is kept.

LeNet on 28×28 inputs, channels last, one thread, published knobs. Each turn is a process of its own, since a process
can't take back what it told its C library; processor time is counted, so other work on the machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence

import torch
from rich.console import Console

from benchmarks.figures import Figure, show
from benchmarks.interleave import Ratio
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.base import OBJECTIVES
from smoothcert.training.memory import keep_freed_memory

SIGMA, LR = 0.5, 1e-4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_memory", description=main.__doc__)
    parser.add_argument("--method", default="macer", choices=OBJECTIVES.names())
    parser.add_argument("--inputs", type=int, default=64, help="inputs a step")
    parser.add_argument("--steps", type=int, default=8, help="steps of a turn")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--turn", choices=["kept", "returned"], help="one turn, in this process")
    options = parser.parse_args(arguments)
    if options.turn is not None:
        print(json.dumps(_turn(options.method, options.inputs, options.steps, options.turn == "kept")))
        return
    words = ["--method", options.method, "--inputs", str(options.inputs), "--steps", str(options.steps)]
    rounds = [
        {turn: _in_a_process(words, turn) for turn in ("returned", "kept")} for _ in range(options.repeats)
    ]
    named = f"{options.method}, {options.inputs} inputs"
    parts = (("seconds", "processor time of a step"), ("peak", "peak memory"))
    figures = [
        Figure("memory", "lenet", f"{named}: {what}, returned / kept", Ratio.of(_ratios(rounds, part)))
        for part, what in parts
    ]
    show(figures, Console(width=120))


def _ratios(rounds: Sequence[dict[str, dict[str, float]]], part: str) -> list[float]:
    return [turns["returned"][part] / turns["kept"][part] for turns in rounds]


def _in_a_process(words: list[str], turn: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.training_memory", *words, "--turn", turn]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _turn(method: str, inputs: int, steps: int, keep: bool) -> dict[str, float]:
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    objective, noise = OBJECTIVES[method](), BatchNoise(SIGMA)
    generator = torch.Generator().manual_seed(0)
    spec = ModelSpec("lenet", (1, 28, 28), tuple("0123456789"))
    network = initialise(spec, seed=0).train()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), LR, 0.9, nesterov=True)
    x, y = torch.rand(inputs, 1, 28, 28, generator=generator), torch.arange(inputs) % 10

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        objective.loss(network, x, y, noise, generator).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    for _ in range(2):
        step()
    before = _used()
    for _ in range(steps):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": (_used() - before) / steps, "peak": float(peak)}


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
