"""The work every contender is given: CERTIFY for a few inputs, counted in votes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from benchmarks.networks import Network
from smoothcert.sampling.execution import usable_cores

SIGMA = 0.5
N0 = 100
ALPHA = 0.001


@dataclass(frozen=True)
class Workload:
    """Certify ``images`` with N0 votes to choose the class and ``n`` to bound it."""

    network: Network
    module: nn.Module
    images: NDArray[np.float32]
    n: int

    @classmethod
    def of(cls, network: Network, n: int, inputs: int) -> Workload:
        """The network's own workload of this size."""
        return cls(network, network.module(), network.images(inputs), n)

    @property
    def votes(self) -> int:
        """All votes the workload asks for."""
        return len(self.images) * (N0 + self.n)

    def resized(self, n: int) -> Workload:
        """The same inputs with another n."""
        return Workload(self.network, self.module, self.images, n)


def workers() -> int:
    """Threads every contender may use: as many as this process has cores."""
    return usable_cores()
