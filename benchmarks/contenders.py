"""smoothcert itself, and the bare forward pass it is held against."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import torch

from benchmarks.workload import ALPHA, N0, SIGMA, Workload, workers
from smoothcert import SmoothedClassifier
from smoothcert.sampling import Execution, Numerics, adapt
from smoothcert.sampling.threads import one_openmp_thread

_READY_BATCHES = 4


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
    """The prepared network on batches that are noisy already, by worker threads like the engine's.

    No noise is drawn, nothing is counted and the threads share no more than a counter: what is left is the
    network. The batches have the engine's shape and distribution, because some kernels' time depends on values.
    """
    prepared = adapt(work.module, "hard").prepare(Numerics(route=route), work.network.input_shape)
    rows = prepared.numerics.layout().chunk
    passes = -(-work.votes // rows)
    generator = torch.Generator().manual_seed(0)
    batches = []
    for i in range(_READY_BATCHES):
        image = torch.from_numpy(work.images[i % len(work.images)])
        batches.append(image + SIGMA * torch.randn((rows, *image.shape), generator=generator))

    def run() -> int:
        turns = itertools.count()

        def work_off() -> None:
            with torch.inference_mode():
                while (turn := next(turns)) < passes:
                    prepared.outputs(batches[turn % _READY_BATCHES])

        with one_openmp_thread():
            threads = [threading.Thread(target=work_off) for _ in range(workers())]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return passes * rows

    return run
