"""Certificates without a model, memories in any store with a way to tamper, and an adversary who knows the memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.regions.bodies import L1Ball, L2Ball
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.stores.base import Head, Row, genesis
from smoothcert.tally import ABSTAIN

Ball = L1Ball | L2Ball
BALLS: dict[str, Any] = {"l1": L1Ball, "l2": L2Ball}


def statement(shape: tuple[int, ...] = (2,), norm: str = "l2", **other: Any) -> MemoryStatement:
    noise = {"l2": "gaussian", "l1": "uniform"}[norm]
    return MemoryStatement(
        **({"model_sha256": "ab" * 32, "input_shape": shape, "noise": noise, "norm": norm} | other)
    )


@dataclass(frozen=True)
class Toy:
    """A certificate that says whatever a test wants."""

    predicted: int
    region: Ball | None


def saying(predicted: int, radius: float, norm: str = "l2") -> Callable[[NDArray[Any]], Toy]:
    """A certifier that gives every input this class and radius; radius 0 abstains."""

    def certify(x: NDArray[Any]) -> Toy:
        if predicted == ABSTAIN or radius <= 0:
            return Toy(ABSTAIN, None)
        return Toy(predicted, BALLS[norm](x.astype(np.float64), radius))

    return certify


def never(x: NDArray[Any]) -> Toy:
    raise AssertionError("a stored region should have answered")


class ListStore:
    """The Store protocol over a list: as fast as a property test needs it, durable as a list is."""

    def __init__(self, about: MemoryStatement) -> None:
        self.statement = about
        self.name = "list"
        self.stored: list[Row] = []

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        before = len(self.stored)
        try:
            yield
        except BaseException:
            del self.stored[before:]
            raise

    def head(self) -> Head:
        return Head(self.stored[-1].id, self.stored[-1].hash) if self.stored else genesis(self.statement)

    def last_id(self) -> int:
        return len(self.stored)

    def rows(self, after: int, upto: int) -> Iterator[Row]:
        return iter(self.stored[after:upto])

    def fetch(self, ids: Sequence[int]) -> list[Row]:
        return [self.stored[i - 1] for i in sorted(ids) if i <= len(self.stored)]

    def append(self, row: Row) -> None:
        self.stored.append(row)

    def close(self) -> None:
        pass


def beside(point: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A few units in the last place away, in one coordinate or all."""
    moved = point.copy()
    where = rng.random(point.shape) < (0.3 if rng.random() < 0.5 else 1.0)
    for _ in range(int(rng.integers(1, 4))):
        moved = np.where(where, np.nextafter(moved, rng.choice([-np.inf, np.inf])), moved)
    return moved


def awkward_point(balls: list[Ball], shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Somewhere new, on a stored center, on an edge to the last bit, between two regions, or a hair beside these."""
    kind = rng.integers(8)
    if not balls or kind == 0:
        return rng.normal(size=shape)
    ball = balls[int(rng.integers(len(balls)))]
    if kind == 1:
        point = np.array(ball.center)
    elif kind in (2, 3, 4):
        direction = rng.normal(size=shape)
        if kind == 2:
            direction = np.zeros(shape)
            direction.flat[int(rng.integers(direction.size))] = rng.choice([-1.0, 1.0])
        direction /= np.linalg.norm(direction.ravel(), 1 if ball.norm == "l1" else 2)
        factor = [1.0, 1.0, 1 - 1e-15, 1 + 1e-15, 1 - 1e-12, 1 + 1e-12, 1 - 1e-9, 0.999, 0.5, 1.3]
        point = ball.center + direction * ball.radius * factor[int(rng.integers(len(factor)))]
    else:
        other = balls[int(rng.integers(len(balls)))]
        weight = ball.radius / (ball.radius + other.radius) if kind == 5 else rng.random()
        point = ball.center + (other.center - ball.center) * weight
    return beside(point, rng) if rng.random() < 0.5 else point


def awkward_radius(point: NDArray[np.float64], balls: list[Ball], rng: np.random.Generator) -> float:
    """Tiny, ordinary, large, or exactly as far as another region's center or edge."""
    kind = rng.integers(6)
    if kind == 0 or (kind > 3 and not balls):
        return float(10.0 ** rng.uniform(-130, -1))
    if kind < 4:
        return float(10.0 ** rng.uniform(-1.5, 0.3))
    ball = balls[int(rng.integers(len(balls)))]
    distance = float(np.linalg.norm((point - ball.center).ravel(), 1 if ball.norm == "l1" else 2))
    radius = distance if kind == 4 else abs(distance - ball.radius)
    return math.nextafter(radius, rng.choice([0.0, math.inf])) if radius > 1e-300 else 1e-16


class Place:
    """Where a memory is, and a way to tamper with it behind its back."""

    def __init__(self, address: str, execute: Callable[..., None], schema: str) -> None:
        self.address = address
        self._execute = execute
        self._schema = schema

    def open(self, **other: Any) -> RegionMemory:
        return RegionMemory.open(self.address, statement(**other))

    def filled(self, count: int = 5) -> Head:
        with self.open() as memory:
            for i in range(count):
                assert memory.answer(np.array([float(i), 0.0]), saying(i % 3, 0.25)).source == "certified"
            return memory.head

    def tamper(self, *commands: str) -> None:
        for command in commands:
            self._execute(command.replace("$", self._schema))
