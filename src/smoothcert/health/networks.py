"""Networks of the usual sizes with random weights, for what doesn't depend on what they have learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from smoothcert.architectures import ModelSpec, initialise

CLASSES = 10


@dataclass(frozen=True)
class RandomNetwork:
    """One network."""

    name: str
    architecture: str
    input_shape: tuple[int, int, int]

    def module(self) -> nn.Module:
        """The network in evaluation mode, the same in every process."""
        spec = ModelSpec(self.architecture, self.input_shape, tuple(str(c) for c in range(CLASSES)))
        return initialise(spec, seed=0).eval().requires_grad_(False)

    def images(self, count: int) -> NDArray[np.float32]:
        """Fixed inputs in [0, 1]."""
        return np.random.default_rng(0).random((count, *self.input_shape), dtype=np.float32)


LENET = RandomNetwork("LeNet", "lenet", (1, 28, 28))
RESNET20 = RandomNetwork("ResNet-20", "cifar_resnet20", (3, 32, 32))
RESNET50 = RandomNetwork("ResNet-50", "resnet50", (3, 224, 224))
