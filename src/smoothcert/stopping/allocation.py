"""Allocation: a budget of votes for a whole data set, spent where it brings the largest sum of radii."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Share:
    """What votes would bring one input: expected ``radii`` at increasing numbers of votes ``sizes``."""

    index: int
    sizes: Sequence[int]
    radii: Sequence[float]


def allocate(shares: Sequence[Share], total: int) -> dict[int, int]:
    """Votes for each input, at most ``total`` in all, with the largest sum of expected radii that steps can reach.

    Greedy on the gain per vote along each input's concave envelope, which is optimal up to the last step: a radius
    isn't concave in n near its first certificate, so single steps would never begin there. Ties go to the lower index.
    """
    votes = {share.index: 0 for share in shares}
    hulls = {share.index: _envelope(share) for share in shares}
    steps = {index: pairwise(hull) for index, hull in hulls.items()}
    queue: list[tuple[float, int, int]] = []
    left = total

    def push(index: int) -> None:
        step = next(steps[index], None)
        if step is not None:
            (n, radius), (more, larger) = step
            heapq.heappush(queue, (-(larger - radius) / (more - n), index, more))

    for share in shares:
        push(share.index)
    while queue:
        _, index, more = heapq.heappop(queue)
        cost = more - votes[index]
        if cost > left:
            continue  # too dear now, and so are this input's later steps; cheaper ones of others may still fit
        left -= cost
        votes[index] = more
        push(index)
    return votes


def _envelope(share: Share) -> list[tuple[int, float]]:
    """The corners of the smallest concave curve above (0, 0) and the points, as far as it rises."""
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for n, radius in zip(share.sizes, share.radii):
        if radius <= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (n, radius)):
            hull.pop()
        hull.append((n, radius))
    return hull


def _slope(a: tuple[int, float], b: tuple[int, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])
