"""The answers of a model of any make as scores, for searches that need nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.sampling.ballots import read_ballots
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.models import Prepared
from smoothcert.sampling.threads import Workers

T = TypeVar("T")
R = TypeVar("R")

_SURE = 30.0  # the score of a label, whose probability is then 1 up to 1e-13


class ValuePasses(Workers):
    """A prepared model as a module without gradients; classes have the numbers that votes give them."""

    def __init__(self, prepared: Prepared, execution: Execution) -> None:
        self.workers = prepared.workers(execution.worker_count())
        self._module = _Scores(prepared).eval()

    def map(
        self, pool: ThreadPoolExecutor, function: Callable[[nn.Module, T], R], tasks: Iterable[T]
    ) -> Iterator[R]:
        """The function's values in the order of the tasks."""
        return pool.map(lambda task: function(self._module, task), tasks)


class _Scores(nn.Module):
    """Scores as they are, logarithms of probabilities, and labels as a certainty."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared = prepared

    def forward(self, batch: Tensor) -> Tensor:
        """One row of scores for each row, asked in passes of the shape that votes are cast in."""
        chunk, dtype = self.prepared.numerics.layout().chunk, self.prepared.numerics.noise_dtype()
        with torch.no_grad():
            parts = torch.split(batch.to(dtype), chunk)
            return torch.cat([self._scores(self.prepared.outputs_of(part)) for part in parts]).to(batch.dtype)

    def _scores(self, answers: Tensor) -> Tensor:
        kind, classes = self.prepared.kind, self.prepared.classes
        if kind == "scores":
            return answers
        if kind == "probabilities":
            return answers.clamp(min=torch.finfo(answers.dtype).tiny).log()
        labels = torch.from_numpy(read_ballots(answers, kind, classes, "hard").labels)
        return F.one_hot(labels, classes) * _SURE
