"""smoothcert itself, and the bare forward pass it is held against."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.workload import ALPHA, N0, SIGMA, Workload, workers
from smoothcert import SmoothedClassifier
from smoothcert.health.speed import bare_rows, noisy_batches
from smoothcert.sampling import Execution, Numerics, adapt


def smoothcert_certify(work: Workload, route: str = "auto") -> Callable[[], int]:
    """CERTIFY through the public interface; returns the votes cast. Preparing the model isn't timed."""
    smoothed = SmoothedClassifier(
        work.module,
        sigma=SIGMA,
        n0=N0,
        n=work.n,
        alpha=ALPHA,
        seed=0,
        levels=255,
        input_shape=work.network.input_shape,
        numerics=Numerics(route=route),
        execution=Execution(workers=workers()),
    )
    smoothed.prepare(work.network.input_shape)

    def run() -> int:
        answers = smoothed.certify_batch(work.images, index=0)
        return sum(answer.selection.n + answer.estimation.n for answer in answers)

    return run


def bare_forward(work: Workload, route: str) -> Callable[[], int]:
    """The prepared network on batches that are noisy already, by worker threads like the engine's."""
    prepared = adapt(work.module, "hard").prepare(Numerics(route=route), work.network.input_shape)
    passes = -(-work.votes // prepared.numerics.layout().chunk)
    batches = noisy_batches(prepared, torch.from_numpy(work.images), "cpu")
    return lambda: bare_rows(prepared, batches, passes, workers())
