"""Searching for many inputs, a window at a time, ahead of their certification."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from smoothcert.sigma_search.base import SearchResult, SigmaSearch
from smoothcert.sigma_search.problem import Problem

SEARCHED_TOGETHER = 128
"""Inputs whose σ is searched for in one batch; it doesn't change what is found."""


def search_each(
    search: SigmaSearch,
    problem: Problem,
    inputs: Iterator[tuple[int, NDArray[Any]]],
    on_evaluations: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, NDArray[Any], SearchResult]]:
    """Each input with what was found for it.

    ``on_evaluations`` counts ``search.evaluations`` rows per input in all: an early stop is progress too.
    """
    while window := list(itertools.islice(inputs, SEARCHED_TOGETHER)):
        found = search.search(problem, window, on_evaluations)
        if on_evaluations is not None:
            on_evaluations(sum(search.evaluations - each.evaluations for each in found))
        yield from ((index, x, each) for (index, x), each in zip(window, found))
