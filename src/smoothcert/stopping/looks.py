"""Looks: at which numbers of votes an adaptive procedure stops to think."""

from __future__ import annotations

from collections.abc import Iterator

from smoothcert.bounds import Bound

FIRST_LOOK = 64
GROWTH = 1.15
"""Looks are this factor apart: an input overshoots by half of that, and a hundred thousand votes have some forty."""


def looks(bound: Bound, n: int, block: int) -> Iterator[int]:
    """Numbers of votes, increasing to the budget n.

    The bound's own schedule if it has one (the plan sees to it that n belongs to it); else geometric, in whole blocks
    of the engine so that no pass is wasted.
    """
    if bound.next_look is not None:
        look = bound.next_look(0)
        while look <= n:
            yield look
            look = bound.next_look(look)
    else:
        yield from sizes(FIRST_LOOK, n, block, GROWTH)


def sizes(smallest: int, largest: int, block: int, growth: float = GROWTH) -> list[int]:
    """Numbers of votes to choose from: geometric in whole blocks, with ``largest`` as the last."""
    found = []
    size = -(-smallest // block) * block
    while size < largest:
        found.append(size)
        size = max(size + block, -(-int(size * growth) // block) * block)
    return [*found, largest]
