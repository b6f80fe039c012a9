"""The ACR while a model is trained: certificates of a few validation inputs, which report and change nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.models.numerics import Dtype, Numerics
from smoothcert.runs.records import average_certified_radius
from smoothcert.smoothing.answers import record_of
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.training.plan import Precision, TrainPlan

_DTYPES: dict[Precision, Dtype] = {
    "float32": "auto",
    "bfloat16": "autocast-bfloat16",
    "float16": "autocast-float16",
}


@dataclass(frozen=True)
class AcrCheck:
    """After every so many epochs, and after the last, the ACR of some validation inputs at the plan's σ.

    These are certificates, with few votes: lower than more votes would give, and comparable between epochs, which have
    the same inputs and the same noise.
    """

    every: int
    inputs: int = 100
    votes: int = 1000

    def __post_init__(self) -> None:
        for name in ("every", "inputs", "votes"):
            check_count(f"acr_{name}", getattr(self, name))

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether it is made after this epoch, counted from 1."""
        return epoch % self.every == 0 or epoch == epochs

    def counted(self, inputs: int) -> int:
        """How many of ``inputs`` are certified each time."""
        return min(self.inputs, inputs)

    def try_out(self, model: nn.Module, dataset: Dataset, plan: TrainPlan, device: torch.device) -> None:
        """Refuse what couldn't be certified, before any training."""
        if plan.sigma == 0:
            raise InvalidValueError("nothing is certified with sigma 0: drop --acr-every, or give --sigma")
        self._classifier(model, dataset, plan, device, 1).prepare(dataset.input_shape)

    def measure(
        self,
        model: nn.Module,
        dataset: Dataset,
        inputs: NDArray[np.int64],
        plan: TrainPlan,
        device: torch.device,
        workers: int,
    ) -> float:
        """The mean radius of an even choice of ``inputs``, 0 where the answer is wrong or missing."""
        places = np.linspace(0, len(inputs) - 1, self.counted(len(inputs))).round().astype(np.int64)
        chosen = [int(index) for index in inputs[places]]
        answers = self._classifier(model, dataset, plan, device, workers).certify_each(dataset.each(chosen))
        return average_certified_radius(
            [record_of(a, a.index, int(dataset.labels[a.index])) for a in answers]
        )

    def _classifier(
        self, model: nn.Module, dataset: Dataset, plan: TrainPlan, device: torch.device, workers: int
    ) -> SmoothedClassifier:
        classifier = SmoothedClassifier(
            copy.deepcopy(model).eval(),  # a copy: voting may lay weights out anew
            sigma=plan.sigma,
            noise=plan.noise,
            n=self.votes,
            seed=plan.seed,
            numerics=Numerics(_DTYPES[plan.precision]),
            execution=Execution(str(device), workers if device.type == "cpu" else None),
        )
        classifier.settle_for(dataset.levels, dataset.largest)
        return classifier
