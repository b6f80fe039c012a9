"""Models on the plane that answer by the sign of the first coordinate, and how they vote."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.engine.execution import Execution
from smoothcert.models.numerics import Numerics

SECONDS = 60.0  # after which a thread counts as stuck
POINTS = np.array([[2.0, 0.0], [-2.0, 0.0]] * 4, dtype=np.float32)


class Kept(nn.Module):
    """Class 0 where x₀ > 0: the first layer's input waits on the module while others are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x[:, :1]
        rest = self.body(x).sum(1, keepdim=True)
        return torch.cat([self.kept, -self.kept], 1) + 0 * rest


class Hooked(nn.Module):
    """The same by a hook that has the module in its closure, and a list that holds what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
        self.seen: list[torch.Tensor] = []
        seen = self.seen
        self.body[0].register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
        self.body[-1].register_forward_hook(lambda *_: self.close())

    def close(self) -> None:
        self.last = self.seen.pop()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rest = self.body(x).sum(1, keepdim=True)
        return torch.cat([self.last[:, :1], -self.last[:, :1]], 1) + 0 * rest


class Signed(nn.Module):
    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sign * torch.cat([x[:, :1], -x[:, :1]], 1)


def scores(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch[:, 0], -batch[:, 0]], 1)


def always_first(batch: np.ndarray) -> np.ndarray:
    return np.zeros(len(batch), np.int64)


def labelled(model: Any = always_first, **fields: Any) -> SmoothedClassifier:
    settings: dict[str, Any] = {"sigma": 0.25, "n": 500, "n0": 20, "seed": 1} | fields
    return SmoothedClassifier(model, outputs="labels", classes=2, **settings)


def smoothed(model: Any, workers: int, **options: Any) -> SmoothedClassifier:
    given: dict[str, Any] = {"sigma": 1.0, "n": 4000, "seed": 0, "numerics": Numerics(chunk=32, block=32)}
    return SmoothedClassifier(model, execution=Execution(workers=workers), **(given | options))


def votes(model: Any, workers: int, **options: Any) -> list[tuple[int, ...]]:
    answers = smoothed(model, workers, **options).certify(POINTS, index=0)
    return [answer.evidence.estimation.counts for answer in answers]


def finished(works: list[Callable[[], Any]]) -> None:
    """All of them done, each in a thread; stuck ones are no reason to wait for ever."""
    threads = [threading.Thread(target=each, daemon=True) for each in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)
        assert not each.is_alive(), "a thread waits for a turn that never comes"


def mirrored(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> bool:
    """Classes exchanged, but for noisy copies that are exactly 0: a tie, which goes to the first class either way."""
    return all(abs(a[0] - b[1]) <= 25 for a, b in zip(found, expected))
