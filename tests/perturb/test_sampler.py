"""The sampler gives each number what a 58-bit uniform integer gives among the thresholds."""

import hashlib
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smoothcert.perturb.sampler import (
    BITS,
    MOST_TABLES,
    CellSampler,
    Thresholds,
    normal_thresholds,
    uniform_thresholds,
)
from smoothcert.tally import STEPS_TOGETHER


class Tape:
    """Stands for a bit generator: hands out prepared words."""

    def __init__(self, *words: NDArray[np.uint64]) -> None:
        self._words = list(words)

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        return self._words.pop(0)[:size] if size else np.empty(0, np.uint64)


def by_definition(thresholds: Thresholds, uniform: int) -> int:
    return bisect_right(thresholds.tolist(), uniform) - len(thresholds) // 2


def packed(prefixes: list[int]) -> NDArray[np.uint64]:
    padded = np.array(prefixes + [0] * (-len(prefixes) % 4), dtype="<u2")
    return padded.view("<u8")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [normal_thresholds, uniform_thresholds])
def test_prefix_and_rest_are_read_as_one_number(make, dtype):
    thresholds = make(Fraction(255, 2))  # type: ignore[operator]
    rng = np.random.default_rng(0)
    rest = BITS - 16
    # Around thresholds, at both ends, and anywhere.
    around = [int(t) + d for t in thresholds[:: len(thresholds) // 60] for d in (-1, 0, 1)]
    uniforms = [0, 1, 2**BITS - 1, *around, *(int(v) for v in rng.integers(0, 2**BITS, 300))]
    for uniform in uniforms:
        out = np.zeros((1, 1), dtype)
        word = np.array([(uniform & (1 << rest) - 1) << (64 - rest)], np.uint64)
        _cached(thresholds).draw(out, Tape(packed([uniform >> rest]), word))  # type: ignore[arg-type]
        assert out[0, 0] == by_definition(thresholds, uniform)


_samplers: dict[bytes, CellSampler] = {}


def _cached(thresholds: Thresholds) -> CellSampler:
    key = thresholds.tobytes()
    if key not in _samplers:
        _samplers[key] = CellSampler([thresholds])
    return _samplers[key]


def test_every_number_is_an_independent_draw_of_the_distribution():
    thresholds = normal_thresholds(Fraction(64))
    out = np.empty((1000, 211), np.float32)
    CellSampler([thresholds]).draw(out, np.random.SFC64(5))
    edges = np.concatenate([[0.0], thresholds.astype(np.float64) / 2**BITS, [1.0]])
    half = len(thresholds) // 2
    counts = np.bincount(out.astype(int).ravel() + half, minlength=2 * half + 1)
    # Cells are joined until each expects 20.
    groups = np.minimum((np.cumsum(np.diff(edges)) * out.size / 20).astype(int), out.size // 20 - 1)
    expected = np.bincount(groups, weights=np.diff(edges) * out.size)
    seen = np.bincount(groups, weights=counts)
    used = expected > 0
    assert stats.chisquare(seen[used], expected[used] * seen.sum() / expected.sum()).pvalue > 1e-4
    flat = out.ravel() / 64
    for lag in (1, 2, 4, 211, STEPS_TOGETHER // 4):
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 5 / np.sqrt(flat.size)


def test_each_coordinate_has_its_own_table():
    ratios = [Fraction(64), Fraction(90), Fraction(120)]
    tables = [normal_thresholds(ratio) for ratio in ratios]
    which = np.array([[0, 1, 2], [2, 1, 0]])
    out = np.empty((20_000, 2, 3), np.float32)
    CellSampler(tables, which).draw(out, np.random.SFC64(9))
    for place in np.ndindex(2, 3):
        within = np.random.default_rng(1).uniform(-0.5, 0.5, len(out))
        law = stats.norm(scale=float(ratios[which[place]]))
        assert stats.kstest(out[:, *place] + within, law.cdf).pvalue > 1e-3
    correlations = np.corrcoef(out.reshape(-1, 6).T) - np.eye(6)
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


def test_both_types_get_the_same_numbers():
    single, double = np.empty((7, 31), np.float32), np.empty((7, 31), np.float64)
    sampler = CellSampler([normal_thresholds(Fraction(64))])
    sampler.draw(single, np.random.SFC64(1))
    sampler.draw(double, np.random.SFC64(1))
    assert np.array_equal(single, double)


def test_more_tables_than_bits_are_refused():
    table = uniform_thresholds(Fraction(64))
    with pytest.raises(ValueError, match=r"\b64\b.*\b65\b"):
        CellSampler([table] * (MOST_TABLES + 1), np.zeros(3, np.intp))


def test_reach_is_never_exceeded():
    thresholds = normal_thresholds(Fraction(64))
    sampler = _cached(thresholds)
    for prefix, word in ((0, 0), (2**16 - 1, 2**64 - 1)):
        out = np.zeros((1, 1), np.float32)
        sampler.draw(out, Tape(packed([prefix]), np.array([word], np.uint64)))  # type: ignore[arg-type]
        assert abs(out[0, 0]) == sampler.reach == len(thresholds) // 2


def test_the_bits_of_a_stream_never_change():
    """Runs are continued and verified by casting votes again: other numbers would need another stream version."""
    for ratios, rows, digest in [
        ([Fraction(255, 2)], 3, "08f8391eaefa2d20"),
        ([Fraction(255, 2)], 90, "fcc3c696d0ef8e31"),
        ([Fraction(64), Fraction(255, 2), Fraction(100, 1)], 90, "eb529070fe4e4f40"),
        ([Fraction(255, 3), Fraction(1900)], 90, "fced8a553065436a"),
    ]:
        which = None if len(ratios) == 1 else np.arange(784) % len(ratios)
        sampler = CellSampler([normal_thresholds(ratio) for ratio in ratios], which)
        for dtype in (np.float32, np.float64):
            out, bits = np.empty((rows, 784), dtype), np.random.SFC64(7)
            for _ in range(2):
                sampler.draw(out, bits)
            assert hashlib.sha256(out.astype("<i4").tobytes()).hexdigest()[:16] == digest
