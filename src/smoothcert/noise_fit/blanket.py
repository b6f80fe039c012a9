"""The blanket: which points of a clean-accuracy picture are worth showing (Tecot et al., appendix B.1)."""

from __future__ import annotations

from collections.abc import Sequence


def blanket(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the (area, accuracy) points kept, from the most accurate down.

    A point is kept only if its area lies outside the range of those kept before it: what goes has a more accurate
    point on either side. Of equally accurate points the one with the larger area comes first.
    """
    order = sorted(range(len(points)), key=lambda k: (-points[k][1], -points[k][0]))
    kept: list[int] = []
    for k in order:
        areas = [points[j][0] for j in kept]
        if not areas or not min(areas) <= points[k][0] <= max(areas):
            kept.append(k)
    return kept
