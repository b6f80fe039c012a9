"""Thresholds are the true probabilities rounded to 2⁻⁵⁸, by 50-digit arithmetic."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from smoothcert.perturb.sampler import BITS, normal_thresholds, uniform_thresholds

RATIOS = [Fraction(64), Fraction(255, 2), Fraction(255), Fraction(0.12) * 510, Fraction(0.3) * 2**9]
RATIOS.append(Fraction(2048))


def normal_cdf(z: mpmath.mpf) -> mpmath.mpf:
    return mpmath.ncdf(z)


def uniform_cdf(z: mpmath.mpf) -> mpmath.mpf:
    return (1 + z / mpmath.sqrt(3)) / 2


def exact(cdf: Callable[[mpmath.mpf], mpmath.mpf], j: int, ratio: Fraction) -> mpmath.mpf:
    return cdf((mpmath.mpf(j) + mpmath.mpf(1) / 2) * ratio.denominator / ratio.numerator)


KINDS = pytest.mark.parametrize(
    ("make", "cdf"),
    [(normal_thresholds, normal_cdf), (uniform_thresholds, uniform_cdf)],
    ids=["normal", "uniform"],
)


@pytest.mark.parametrize("ratio", RATIOS)
@KINDS
def test_each_threshold_is_the_nearest_multiple(make, cdf, ratio):
    found = make(ratio)
    half = len(found) // 2
    assert len(found) == 2 * half
    whole = found.astype(object)
    assert (np.diff(whole) >= 0).all()
    assert (whole + whole[::-1] == 2**BITS).all()
    assert 0 < whole[0] < whole[-1] < 2**BITS
    with mpmath.workdps(50):
        for place in sorted({*range(0, 2 * half, max(1, half // 15)), half - 1, half, 2 * half - 1}):
            scaled = exact(cdf, place - half, ratio) * 2**BITS
            assert abs(int(found[place]) - scaled) <= mpmath.mpf("0.5000001")
        beyond = exact(cdf, half, ratio)
        assert 1 - beyond < mpmath.mpf(2) ** -(BITS + 1)


@KINDS
def test_the_distance_from_the_true_distribution_is_within_the_bound(make, cdf):
    """Total variation of one coordinate, cell by cell and tails included, against (2⌈10ρ⌉ + 3)·2⁻⁵⁸."""
    for ratio in (Fraction(64), Fraction(0.17) * 510):
        found = [0, *(int(t) for t in make(ratio)), 2**BITS]
        half = len(found) // 2 - 1
        with mpmath.workdps(50):
            edges = [mpmath.mpf(0), *(exact(cdf, k - half, ratio) for k in range(2 * half)), mpmath.mpf(1)]
            drawn = [mpmath.mpf(b - a) / 2**BITS for a, b in pairwise(found)]
            true = [b - a for a, b in pairwise(edges)]
            outside = 2 * (1 - exact(cdf, half, ratio))  # cells beyond the last, which are never drawn
            distance = sum(abs(a - b) for a, b in zip(drawn, true)) / 2 + max(outside, mpmath.mpf(0))
        cells = 2 * -(-10 * ratio.numerator // ratio.denominator) + 3
        assert 0 < distance <= mpmath.mpf(cells) / 2**BITS
