"""Engines of small models for the tests of the service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from smoothcert import SmoothedClassifier
from smoothcert.sampling import Execution, Numerics
from smoothcert.service.engine import EngineLimits, VotingEngine
from smoothcert.service.randomness import Secret

SHAPE = (2,)
NUMERICS = Numerics("float32", "eager", 64, 16)


class Edge:
    """Class 0 where the first coordinate is below ``at``, else 1; NaN beyond 100; may be held up or counted."""

    def __init__(self, at: float = 0.5) -> None:
        self.at = at
        self.open = threading.Event()
        self.open.set()
        self.rows = 0

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.open.wait(30)
        self.rows += len(batch)
        scores = np.stack([self.at - batch[:, 0], batch[:, 0] - self.at], axis=1)
        scores[batch[:, 1] > 100] = np.nan
        return scores


def smoothed(model: Any = None, **fields: Any) -> SmoothedClassifier:
    plan = {"bound": "mixture-two-class", "n": 2048, "n0": 16, "sigma": 1.0, "numerics": NUMERICS} | fields
    return SmoothedClassifier(
        model or Edge(), outputs="scores", classes=2, execution=Execution(workers=1), **plan
    )


@contextmanager
def running(
    model: Any = None, limits: EngineLimits | None = None, secret: Secret | None = None, **fields: Any
) -> Iterator[VotingEngine]:
    engine = VotingEngine(smoothed(model, **fields), SHAPE, secret or Secret.of_seed(0), limits)
    try:
        yield engine
    finally:
        engine.close()
