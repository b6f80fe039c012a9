"""``python -m benchmarks.grid_noise``: what noise on a grid costs beside noise drawn and added in floating point.

`speed` draws a block's noise both ways, in turns, into the same buffer; `acr --model RUN` certifies the same inputs
with votes on the grid and with votes in floating point (repeat, `normal_`, add, argmax: the papers' way), which must
agree up to the luck of the votes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.interleave import interleave, speedup
from smoothcert import SmoothedClassifier
from smoothcert.commands.model_argument import load_named_model
from smoothcert.commands.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.evaluation import Choice
from smoothcert.noise import DiagonalGaussian, Gaussian, Grid, Noise, Uniform, on_grid
from smoothcert.sampling.models import TorchClassifier
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.smoothing import CertifyPlan
from smoothcert.tally import Phase, Stream, Tally

_ROWS = 256


def speed(repeats: int) -> None:
    """Numbers a second, on the grid over in floating point; above 1 the grid is the faster."""
    torch.set_num_threads(1)
    cases: list[tuple[str, Noise, tuple[int, ...]]] = [
        *((f"gaussian σ={s}, MNIST", Gaussian(s), (784,)) for s in (0.25, 0.5, 1.0)),
        ("gaussian σ=0.25, CIFAR-10", Gaussian(0.25), (3072,)),
        ("uniform σ=0.5, MNIST", Uniform(0.5), (784,)),
        ("64 scales, MNIST", DiagonalGaussian(np.geomspace(0.2, 0.49, 64)[np.arange(784) % 64]), (784,)),
    ]
    print("| noise | numbers a second, grid over floating point |\n|---|---|")
    for name, noise, shape in cases:
        rounds = interleave({"grid": _on_grid(noise, shape), "float": _in_floats(noise, shape)}, repeats)
        ratio = speedup(rounds, "grid", "float")
        print(f"| {name} | {ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f}) |")


def _on_grid(noise: Noise, shape: tuple[int, ...]) -> Callable[[], int]:
    grid, bits = on_grid(noise, Grid.of(255), shape), np.random.SFC64(0)
    out, x, divisor = torch.empty((_ROWS, *shape)), torch.ones(shape), grid.divisor(torch.float32)

    def run() -> int:
        for _ in range(20):
            grid.sampler.draw(out.numpy(), bits)
            out.add_(x).div_(divisor)
        return 20 * out.numel()

    return run


def _in_floats(noise: Noise, shape: tuple[int, ...]) -> Callable[[], int]:
    generator = torch.Generator().manual_seed(0)
    out, x = torch.empty((_ROWS, *shape)), torch.ones(shape)
    scales = torch.from_numpy(np.array(noise.scales())).float()
    uniform, width = isinstance(noise, Uniform), math.sqrt(3.0) * noise.sigma

    def run() -> int:
        for _ in range(20):
            if uniform:
                out.uniform_(-width, width, generator=generator)
            elif scales.ndim:
                out.normal_(generator=generator).mul_(scales)
            else:
                out.normal_(0.0, float(scales), generator=generator)
            out.add_(x)
        return 20 * out.numel()

    return run


def acr(model: str, data_dir: Path | None, skip: int, n: int) -> None:
    """ACR with both kinds of votes, and how far apart luck alone would put them."""
    named = load_named_model(model, ModelOptions(), "hard")
    data = load(named.dataset_or(None), "test", data_dir)
    sigma = named.sigma_or(None)
    classifier = SmoothedClassifier(named.classifier, sigma=sigma, n=n, seed=0, levels=data.levels)
    plan = classifier.prepare(data.input_shape)
    assert isinstance(named.classifier, TorchClassifier)
    chosen = Choice(skip).indices(len(data))
    on_the_grid = {a.index: a for a in classifier.certify_each((i, data.input(i)) for i in chosen)}
    module = named.classifier.module
    pairs = []
    for i in chosen:
        label, answer = int(data.labels[i]), on_the_grid[i]
        selection, estimation = (
            _float_votes(module, data.inputs([i]), sigma, votes, 2 * i + k)
            for k, votes in enumerate((plan.n0, n))
        )
        pairs.append(
            (
                answer.radius if answer.predicted == label else 0.0,
                _radius(plan, selection.argmax(), estimation, label),
            )
        )
    grid, floats = np.array(pairs).T
    luck = float((grid - floats).std(ddof=1)) / math.sqrt(len(pairs))
    print(
        f"{model}: {len(pairs)} inputs, n = {n}, σ = {sigma:g}: ACR {grid.mean():.4f} on the grid, "
        f"{floats.mean():.4f} in floating point; difference {grid.mean() - floats.mean():+.4f}, "
        f"standard error {luck:.4f}"
    )


def _radius(plan: CertifyPlan, chosen: np.intp, counts: NDArray[np.int64], label: int) -> float:
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, int(counts.sum()), tuple(int(c) for c in counts))
    bounds = replace(plan, stream=1).bounds_of(tally, int(chosen))
    return plan.certificate.radius(bounds) if int(chosen) == label else 0.0


@torch.inference_mode()
def _float_votes(
    module: torch.nn.Module, x: NDArray[np.float32], sigma: float, votes: int, seed: int
) -> NDArray[np.int64]:
    generator = torch.Generator().manual_seed(seed)
    counts: NDArray[np.int64] | None = None
    with one_openmp_thread():
        for start in range(0, votes, 64):
            noisy = (
                torch.empty((64, *x.shape[1:]))
                .normal_(0.0, sigma, generator=generator)
                .add_(torch.from_numpy(x))
            )
            scores = module(noisy)[: votes - start]
            found = np.bincount(scores.argmax(1).numpy(), minlength=scores.shape[1])
            counts = found if counts is None else counts + found
    assert counts is not None
    return counts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid_noise", description=__doc__)
    parser.add_argument("what", choices=["speed", "acr"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--model", nargs="+", default=[])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--skip", type=int, default=50)
    parser.add_argument("--n", type=int, default=10_000)
    options = parser.parse_args()
    if options.what == "speed":
        speed(options.repeats)
    for model in options.model:
        acr(model, options.data_dir, options.skip, options.n)


if __name__ == "__main__":
    main()
