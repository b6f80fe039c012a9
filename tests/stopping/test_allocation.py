"""Allocation: never over the total, as good as trying everything, and not fooled by a flat beginning."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from smoothcert.stopping import Share, allocate


def gained(shares: list[Share], votes: dict[int, int]) -> float:
    return sum(dict(zip(s.sizes, s.radii, strict=True)).get(votes[s.index], 0.0) for s in shares)


def best(shares: list[Share], total: int) -> float:
    """By trying every combination."""
    choices = [[(0, 0.0), *zip(s.sizes, s.radii, strict=True)] for s in shares]
    sums = ((sum(n for n, _ in c), sum(r for _, r in c)) for c in itertools.product(*choices))
    return max(radius for n, radius in sums if n <= total)


@pytest.mark.parametrize("seed", range(20))
def test_no_combination_is_much_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = [Share(i, (1, 2, 4, 8), tuple(np.sort(rng.random(4)).tolist())) for i in range(4)]
    largest_step = max(s.radii[-1] for s in shares)
    for total in (0, 1, 5, 12, 32):
        votes = allocate(shares, total)
        assert sum(votes.values()) <= total
        assert best(shares, total) - largest_step <= gained(shares, votes) <= best(shares, total) + 1e-12
    assert gained(shares, allocate(shares, 32)) == pytest.approx(best(shares, 32))


def test_where_votes_cost_the_same_it_is_optimal() -> None:
    shares = [Share(0, (10, 20), (1.0, 1.5)), Share(1, (10, 20), (0.8, 1.6)), Share(2, (10, 20), (0.1, 0.2))]
    assert allocate(shares, 40) == {0: 20, 1: 20, 2: 0}
    assert allocate(shares, 30) == {0: 10, 1: 20, 2: 0}


def test_a_flat_beginning_does_not_hide_what_comes_later() -> None:
    late = Share(0, (10, 20, 30), (0.0, 0.0, 3.0))
    early = Share(1, (10, 20, 30), (0.5, 0.6, 0.7))
    assert allocate([late, early], 30) == {0: 30, 1: 0}


def test_nothing_is_wasted_on_the_hopeless() -> None:
    assert allocate([Share(7, (10, 20), (0.0, 0.0))], 100) == {7: 0}
    assert allocate([], 100) == {}
