"""What people run today: the plain loop of the papers' code, and adversarial-robustness-toolbox."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.networks import CLASSES
from benchmarks.workload import ALPHA, N0, SIGMA, Workload, workers

CUSTOMARY_BATCH = 1000
TOOLBOX_BATCH = 32  # the default of its certify
INSTALL_TOOLBOX = "pip install -c constraints.txt -e '.[bench]'"


def plain_loop(work: Workload, batch: int) -> Callable[[], int]:
    """Repeat the input, add noise, take the top class, count in Python; all cores in OpenMP."""

    def run() -> int:
        torch.set_num_threads(workers())
        cast = 0
        for image in torch.from_numpy(work.images):
            for votes in (N0, work.n):
                cast += int(_plain_counts(work.module, image, votes, batch).sum())
        return cast

    return run


@torch.no_grad()
def _plain_counts(module: nn.Module, image: torch.Tensor, votes: int, batch: int) -> NDArray[np.int64]:
    counts = np.zeros(CLASSES, dtype=np.int64)
    for start in range(0, votes, batch):
        rows = min(batch, votes - start)
        copies = image.repeat((rows, 1, 1, 1))
        noisy = copies + torch.randn_like(copies) * SIGMA
        for label in module(noisy).argmax(1).numpy():
            counts[label] += 1
    return counts


def toolbox_certify(work: Workload, batch: int = TOOLBOX_BATCH) -> Callable[[], int]:
    """PyTorchRandomizedSmoothing.certify; raises ImportError where the toolbox isn't installed."""
    smoothing = toolbox_class()
    classifier = smoothing(
        work.module,
        nn.CrossEntropyLoss(),
        work.network.input_shape,
        CLASSES,
        device_type="cpu",
        sample_size=N0,
        scale=SIGMA,
        alpha=ALPHA,
    )

    def run() -> int:
        torch.set_num_threads(workers())
        classifier.certify(work.images, n=work.n, batch_size=batch)
        return work.votes

    return run


def toolbox_class() -> Any:
    """PyTorchRandomizedSmoothing, imported quietly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about optional frameworks it would also support
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing

    return PyTorchRandomizedSmoothing
