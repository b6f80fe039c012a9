"""The networks that are measured, with random weights: speed doesn't depend on what they have learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from smoothcert.architectures import ModelSpec, initialise

CLASSES = 10


@dataclass(frozen=True)
class Network:
    """One network, and how many votes an input gets in a run of sensible length."""

    name: str
    architecture: str
    input_shape: tuple[int, int, int]
    votes: int
    memory_votes: tuple[int, int]

    def module(self) -> nn.Module:
        """The network in evaluation mode, the same in every process."""
        spec = ModelSpec(self.architecture, self.input_shape, tuple(str(c) for c in range(CLASSES)))
        return initialise(spec, seed=0).eval().requires_grad_(False)

    def images(self, count: int) -> NDArray[np.float32]:
        """Fixed inputs in [0, 1]."""
        return np.random.default_rng(0).random((count, *self.input_shape), dtype=np.float32)


NETWORKS = {
    network.name: network
    for network in (
        Network("lenet", "lenet", (1, 28, 28), votes=30_000, memory_votes=(10_000, 100_000)),
        Network("resnet20", "cifar_resnet20", (3, 32, 32), votes=4_000, memory_votes=(2_000, 10_000)),
    )
}
