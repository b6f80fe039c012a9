"""``python -m benchmarks.device_path``: votes a second of the device path.

On the CPU, where the path is forced (``--generator philox``), the ratio is to the ordinary path: it says what drawing
by integer operations costs there, and nothing about an accelerator. On an accelerator (``--device cuda``) it is to the
bare forward: the same network, route and rows, on batches that are there already. In turns; preparing isn't timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.interleave import Ratio
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.noise import Gaussian
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier

SHAPES: dict[str, tuple[int, ...]] = {
    "lenet": (1, 28, 28),
    "cifar_resnet20": (3, 32, 32),
    "resnet50": (3, 224, 224),
}
_INPUTS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    on_cpu = options.device.startswith("cpu")
    base = "ordinary path" if on_cpu else "bare forward"
    table = Table("network", "route", "rows", f"votes a second / {base}", "range", "votes a second")
    for name in options.networks:
        shape = SHAPES[name]
        module = initialise(ModelSpec(name, shape, tuple(str(c) for c in range(10))), seed=0)
        execution = Execution(options.device, 1 if on_cpu else None)
        plan = CertifyPlan(Gaussian(0.25), n=options.n, seed=0, levels=255)
        path = _certifying(module, replace(plan, numerics=Numerics(generator="philox")), execution, shape)
        settled = path.prepare(shape).numerics
        other: Callable[[], float]
        if on_cpu:
            ordinary = _certifying(
                module, replace(plan, numerics=replace(settled, generator="sfc64")), execution, shape
            )
            other = _timed(ordinary, shape, options.n)
        else:
            other = _bare(module, settled, shape, execution)
        mine = _timed(path, shape, options.n)
        mine(), other()  # both have kernels to choose
        rates = [(mine(), other()) for _ in range(options.repeats)]
        ratio = Ratio.of([one / two for one, two in rates])
        table.add_row(
            name,
            settled.route,
            str(settled.chunk),
            f"{ratio.median:.2f}",
            f"{ratio.low:.2f} – {ratio.high:.2f}",
            f"{max(one for one, _ in rates):.0f}",
        )
    Console(width=110).print(table)


def _certifying(
    module: nn.Module, plan: CertifyPlan, execution: Execution, shape: tuple[int, ...]
) -> SmoothedClassifier:
    smoothed = SmoothedClassifier(module, plan, execution=execution)
    smoothed.prepare(shape)
    return smoothed


def _timed(smoothed: SmoothedClassifier, shape: tuple[int, ...], n: int) -> Callable[[], float]:
    """Votes a second of CERTIFY."""
    inputs = [(index, np.full(shape, 0.5, np.float32)) for index in range(_INPUTS)]

    def rate() -> float:
        began = time.perf_counter()
        for _ in smoothed.certify_each(inputs):
            pass
        return _INPUTS * (n + smoothed.plan.n0) / (time.perf_counter() - began)

    return rate


def _bare(
    module: nn.Module, numerics: Numerics, shape: tuple[int, ...], execution: Execution
) -> Callable[[], float]:
    """Rows a second of the network alone, on all devices."""
    devices = execution.devices()
    chunk = numerics.layout().chunk
    models = [adapt(module, "hard").prepare(numerics, shape, device) for device in devices]
    batches = [torch.rand((chunk, *shape), device=device) for device in devices]
    passes = 20

    @torch.inference_mode()
    def rate() -> float:
        began = time.perf_counter()
        for prepared, batch in zip(models, batches):
            with prepared.lending.borrowed() as model:
                for _ in range(passes):
                    model(batch)
        for device in devices:
            torch.accelerator.synchronize(device)
        return passes * chunk * len(devices) / (time.perf_counter() - began)

    return rate


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_path", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--networks", nargs="+", choices=SHAPES, default=["lenet", "cifar_resnet20"])
    parser.add_argument("--n", type=int, default=4000, help="votes on each of four inputs")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    return parser


if __name__ == "__main__":
    main()
