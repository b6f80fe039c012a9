"""An independent judge of ball geometry: whole-number arithmetic on the exact values of the floats."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.regions.bodies import L1Ball, L2Ball

Ball = L1Ball | L2Ball


_UNIT = 1 << 1074  # every double is a whole multiple of 1/_UNIT


def whole(value: float) -> int:
    """``value`` in units of 2^-1074: exact, and much faster than fractions."""
    numerator, denominator = float(value).as_integer_ratio()
    return numerator * (_UNIT // denominator)


@lru_cache(maxsize=2000)
def _wholes(content: bytes) -> list[int]:
    return [whole(value) for value in np.frombuffer(content).tolist()]


def _offsets(a: NDArray[Any], b: NDArray[Any]) -> list[int]:
    first, second = (_wholes(np.asarray(p, dtype=np.float64).tobytes()) for p in (a, b))
    return [p - q for p, q in zip(first, second)]


def closer_than(a: NDArray[Any], b: NDArray[Any], norm: str, bound: int) -> bool:
    """Whether ‖a − b‖ < bound (in units), exactly."""
    offsets = _offsets(a, b)
    if bound <= 0:
        return False
    if norm == "l1":
        return sum(map(abs, offsets)) < bound
    return sum(o * o for o in offsets) < bound * bound


def holds(ball: Ball, point: NDArray[Any]) -> bool:
    """Whether the open ball holds the point, exactly."""
    return closer_than(point, ball.center, ball.norm, whole(ball.radius))


def meet(first: Ball, second: Ball) -> bool:
    """Whether two open balls share a point, exactly."""
    return closer_than(first.center, second.center, first.norm, whole(first.radius) + whole(second.radius))


def holds_ball(outer: Ball, inner: Ball) -> bool:
    """Whether ``inner`` is a subset of ``outer``, exactly: ‖centers‖ ≤ R − r, in whole units < R − r + 1."""
    gap = whole(outer.radius) - whole(inner.radius)
    if outer.norm == "l1":
        return gap >= 0 and closer_than(outer.center, inner.center, "l1", gap + 1)
    offsets = _offsets(outer.center, inner.center)
    return gap >= 0 and sum(o * o for o in offsets) <= gap * gap


class Claims:
    """Balls with classes, in order; finds those that hold a point."""

    def __init__(self) -> None:
        self.labelled: list[tuple[int, Ball]] = []
        self._centers: list[NDArray[Any]] = []

    def add(self, label: int, ball: Ball) -> None:
        self.labelled.append((label, ball))
        self._centers.append(ball.center.ravel())

    def holding(self, point: NDArray[Any]) -> list[int]:
        """Classes of all balls that hold the point; doubles only rule out what is clearly far away."""
        if not self.labelled:
            return []
        order = 1 if self.labelled[0][1].norm == "l1" else 2
        distances = np.linalg.norm(np.stack(self._centers) - point.ravel(), order, axis=1)
        return [
            label
            for (label, ball), distance in zip(self.labelled, distances)
            if distance <= ball.radius * (1 + 1e-6) + 1e-9 and holds(ball, point)
        ]


def meeting_pairs(labelled: Sequence[tuple[int, Ball]]) -> list[tuple[int, int]]:
    """Positions of balls of different classes that meet; doubles decide only what they decide clearly."""
    if not labelled:
        return []
    order = 1 if labelled[0][1].norm == "l1" else 2
    centers = np.stack([ball.center.ravel() for _, ball in labelled])
    radii = np.array([ball.radius for _, ball in labelled])
    classes = np.array([label for label, _ in labelled])
    found = []
    for i in range(1, len(labelled)):
        distances = np.linalg.norm(centers[:i] - centers[i], order, axis=1)
        sums = radii[:i] + radii[i]
        unclear = (classes[:i] != classes[i]) & (distances < sums * (1 + 1e-6) + 1e-9)
        found += [(int(j), i) for j in np.flatnonzero(unclear) if meet(labelled[j][1], labelled[i][1])]
    return found
