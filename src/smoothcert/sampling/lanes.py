"""Lanes: what waits for a pass, each item in the slot that is its own whoever its neighbours are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Items waiting for a round, one lane for each slot of it.

    Lanes hold iterators: any number of items takes no more memory than a few.
    """

    def __init__(self, slots: int) -> None:
        self._lanes: list[deque[Iterator[T]]] = [deque() for _ in range(slots)]
        self.waiting = 0

    def add(self, slot: int, items: Iterable[T], count: int) -> None:
        """Queue ``count`` items for a slot."""
        self._lanes[slot].append(iter(items))
        self.waiting += count

    def next_round(self) -> list[T | None]:
        """One item from every lane that has any, at its slot's position."""
        return [self._take(lane) for lane in self._lanes]

    def _take(self, lane: deque[Iterator[T]]) -> T | None:
        while lane:
            item = next(lane[0], None)
            if item is not None:
                self.waiting -= 1
                return item
            lane.popleft()
        return None


def rounds(slots: int, items: Iterable[tuple[int, T]]) -> list[list[T | None]]:
    """Items, each with its slot, in as many rounds as the fullest slot needs."""
    lanes: Lanes[T] = Lanes(slots)
    for slot, item in items:
        lanes.add(slot, [item], 1)
    found = []
    while lanes.waiting:
        found.append(lanes.next_round())
    return found


def slot_of(index: int, slots: int) -> int:
    """An input's slot, from its index alone; Fibonacci hashing spreads evenly spaced indices evenly."""
    return ((index * 0x9E3779B97F4A7C15 & (1 << 64) - 1) * slots) >> 64
