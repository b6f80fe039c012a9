"""Looks: in whole blocks, growing, the last at the budget; the bound's own where it has a schedule."""

from __future__ import annotations

from itertools import pairwise

import pytest

from smoothcert.bounds import BOUNDS
from smoothcert.stopping import looks
from smoothcert.stopping.looks import sizes


@pytest.mark.parametrize("block", [1, 64, 100, 128, 256])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 100_000])
def test_looks_are_whole_blocks_up_to_the_budget(n: int, block: int) -> None:
    found = list(looks(BOUNDS["mixture"], n, block))
    assert found[-1] == n
    assert all(look % block == 0 for look in found[:-1])
    assert all(a < b for a, b in pairwise(found))
    assert len(found) < 60


def test_a_scheduled_bound_is_looked_at_when_it_permits() -> None:
    found = list(looks(BOUNDS["looks"], 1000, 128))
    assert found == [100, 133, 178, 237, 316, 422, 562, 750, 1000]


def test_numbers_to_choose_from() -> None:
    found = sizes(100, 1000, 64, growth=1.5)
    assert found == [128, 192, 320, 512, 768, 1000]
    assert sizes(100, 50, 64) == [50]
