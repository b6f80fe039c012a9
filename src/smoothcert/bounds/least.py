"""The fewest votes that can decide anything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from smoothcert.bounds.base import Bound, VoteKind
from smoothcert.bounds.exact import top_two_p_value
from smoothcert.errors import check_probability
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally


def least_votes(bound: Bound, alpha: float) -> int:
    """The smallest n, of those ``bound`` permits, at which a unanimous vote is enough for it at ``alpha``."""

    def unanimous_suffices(n: int) -> bool:
        return bound(unanimous(n, 2, bound.votes), 0, alpha).separated

    if bound.next_look is None:
        return _first_true(unanimous_suffices)
    n = bound.next_look(0)
    while not unanimous_suffices(n):
        n = bound.next_look(n)
    return n


def least_prediction_votes(alpha: float) -> int:
    """The smallest n at which PREDICT can answer: all votes for one class, 2·2⁻ⁿ ≤ α."""
    alpha = check_probability("alpha", alpha)
    return _first_true(lambda n: top_two_p_value(n, 0) <= alpha)


def unanimous(n: int, classes: int, votes: VoteKind) -> Tally:
    """The most favourable tally of n votes there can be: all for class 0, with full confidence."""
    counts = (n,) + (0,) * (classes - 1)
    soft = tuple(c * SOFT_UNIT for c in counts) if votes == "soft" else None
    return Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, counts, soft, soft)


def _first_true(holds: Callable[[int], bool]) -> int:
    """Smallest n ≥ 1 with ``holds(n)``, for a condition that stays true once it is."""
    high = 1
    while not holds(high):
        high *= 2
    return bisect_left(range(high), True, high // 2 + 1, key=holds)
