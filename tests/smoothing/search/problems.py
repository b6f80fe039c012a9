"""Problems that a search can be held against."""

from typing import Any

import numpy as np
import torch
from torch import nn

from smoothcert import Execution, SmoothedClassifier
from smoothcert.smoothing.search.base import SearchProblem


class Sure(nn.Module):
    """Always class 0, with full confidence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([10 + 0 * x[:, 0], -10 + 0 * x[:, 0]], 1)


def problem(
    model: Any,
    shape: tuple[int, ...] = (2,),
    *,
    sigma: float = 0.5,
    n: int = 10_000,
    execution: Execution | None = None,
    **options: Any,
) -> SearchProblem:
    """As SmoothedClassifier would put it to a search."""
    classifier = SmoothedClassifier(model, sigma=sigma, n=n, execution=execution, **({"seed": 0} | options))
    plan = classifier.prepare(shape)
    return SearchProblem(
        classifier.base,
        classifier.prepared(shape),
        plan.noise,
        plan.confidence_bound,
        plan.n,
        plan.alpha,
        plan.seed,
        classifier.execution,
    )


def labels(**options: Any) -> dict[str, Any]:
    """Options of a function that returns one of two labels."""
    return {"outputs": "labels", "classes": 2} | options


def origin(*indices: int, dimensions: int = 2) -> list[tuple[int, np.ndarray]]:
    """The origin under several numbers."""
    return [(index, np.zeros(dimensions)) for index in indices]
