"""The prefilter may include too much and never too little."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert.region_memory.sketch import SketchIndex


@pytest.mark.parametrize("shape", [(1,), (3,), (100,), (28, 28), (3, 32, 32), (20, 4, 4), (1, 7, 3)])
def test_nothing_within_reach_is_left_out(shape: tuple[int, ...]) -> None:
    for scale in (1e-60, 1e-20, 1e-3, 1.0, 1e4, 1e18, 3e18, 1e19, 2e19, 1e37, 1e38, 1e60):
        check_reach(shape, scale)


def check_reach(shape: tuple[int, ...], scale: float) -> None:
    rng = np.random.default_rng(1)
    size = int(np.prod(shape))
    index = SketchIndex(shape)
    base = rng.random(size) * scale
    # Neighbours at exactly the threshold, smooth or rough, of a vector that is long compared with it.
    shifts = rng.normal(size=(300, size))
    shifts[:100] = 1.0
    shifts[100:120] = np.eye(size)[rng.integers(size, size=20)]
    shifts /= np.linalg.norm(shifts, axis=1, keepdims=True)
    lengths = scale * 10.0 ** rng.uniform(-12, 1, size=300)
    points = base + shifts * lengths[:, np.newaxis]
    exact = np.linalg.norm((points - base).astype(np.longdouble), axis=1)
    reaches = np.maximum((exact * rng.uniform(0, 1, size=300)).astype(np.float64), 1e-100)
    index.add(points, reaches)
    for position in range(0, 300, 7):
        rest = float(np.nextafter(float(exact[position]) - reaches[position], np.inf)) * (1 + 1e-15)
        found = set(index.near(base, max(rest, 0.0)).tolist())
        assert {i for i in range(300) if exact[i] < reaches[i] + rest} <= found, scale


def test_it_rules_out_what_is_far_away_and_counts_on_from_a_start() -> None:
    rng = np.random.default_rng(2)
    index = SketchIndex((1, 14, 14))
    smooth = np.repeat(np.repeat(rng.random((70_000, 7, 7)), 2, axis=1), 2, axis=2).reshape(70_000, -1)
    index.add(smooth[:65_000], np.full(65_000, 0.5))
    index.add(smooth[65_000:], np.full(5_000, 0.5))
    assert len(index) == 70_000
    assert index.nbytes < 2 * 65_536 * 300
    for position in (0, 64_999, 65_535, 65_536, 69_999):
        assert index.near(smooth[position], 0.5).tolist() == [position]
        assert index.near(smooth[position], 0.5, start=position).tolist() == [position]
        assert index.near(smooth[position], 0.5, start=position + 1).tolist() == []


def test_an_empty_index_finds_nothing() -> None:
    assert SketchIndex((2,)).near(np.zeros(2), 1.0).tolist() == []
