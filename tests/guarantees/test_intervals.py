"""Intervals over the inputs cover as often as they say: enumerated outcome by outcome, no simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.intervals import (
    mean_interval,
    mean_lower_bound,
    population_lower_bound,
    rate_interval,
)
from smoothcert.bounds import clopper_pearson_lower
from tests.guarantees.coverage import exact_miss_rate

ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_rates_are_covered(n: int, confidence: float) -> None:
    intervals = np.array([rate_interval(k, n, confidence) for k in range(n + 1)])
    for p in np.unique(np.clip(np.concatenate([np.linspace(0, 1, 101), intervals.ravel()]), 0, 1)):
        for near in (p, p * (1 - 1e-9), min(1.0, p * (1 + 1e-9))):
            missed = (intervals[:, 0] > near) | (intervals[:, 1] < near)
            miss = stats.binom.pmf(np.arange(n + 1), n, near)[missed].sum()
            assert miss <= (1 - confidence) * ROUNDING


def population_miss_rate(bound: Callable[[int], float], m: int, true_share: float, alpha: float) -> float:
    """P[bound > true share] where every input that isn't robust is certified with probability α: the worst case."""
    counted = true_share + alpha * (1 - true_share)
    missed = [k for k in range(m + 1) if bound(k) > true_share]
    return float(stats.binom.pmf(missed, m, counted).sum()) if missed else 0.0


@pytest.mark.parametrize(("m", "alpha", "rho"), [(50, 0.05, 0.05), (400, 0.001, 0.01), (400, 0.1, 0.01)])
def test_the_population_statement_holds_though_certificates_fail(m: int, alpha: float, rho: float) -> None:
    values = [population_lower_bound(k, m, alpha, rho) for k in range(m + 1)]
    shares = [0.0, *np.linspace(0.001, 0.999, 60), *(v * (1 - 1e-9) for v in values[:: max(1, m // 50)])]
    for share in shares:
        assert population_miss_rate(values.__getitem__, m, share, alpha) <= rho * ROUNDING


def test_the_population_statement_would_break_if_alpha_were_not_subtracted() -> None:
    m, alpha, rho = 400, 0.1, 0.01
    broken = [clopper_pearson_lower(k, m, rho) for k in range(m + 1)]
    assert population_miss_rate(broken.__getitem__, m, 0.0, alpha) > 0.99
    assert population_miss_rate(broken.__getitem__, m, 0.5, alpha) > 0.3


@pytest.mark.parametrize("n", [1, 12, 60])
@pytest.mark.parametrize("rho", [0.2, 0.05, 0.001])
def test_means_of_values_at_both_ends_are_bounded(n: int, rho: float) -> None:
    bounds = [mean_lower_bound([2.0] * k + [0.0] * (n - k), 2.0, rho) / 2 for k in range(n + 1)]
    for p in [*np.linspace(0.002, 0.998, 120), *(b * (1 - 1e-9) for b in bounds)]:
        assert exact_miss_rate(bounds.__getitem__, n, p) <= rho


@pytest.mark.parametrize("middle", [0.1, 0.5, 0.9])
def test_means_of_three_values_are_bounded(middle: float) -> None:
    n, confidence = 14, 0.9
    outcomes = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    ends = np.array(
        [mean_interval([0.0] * i + [middle] * j + [1.0] * k, 0.0, 1.0, confidence) for i, j, k in outcomes]
    )
    steps = np.linspace(0, 1, 21)
    for p in ((a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12):
        weights = stats.multinomial.pmf(outcomes, n, np.clip(p, 0, 1) / np.clip(p, 0, 1).sum())
        mean = p[1] * middle + max(p[2], 0.0)
        missed = (ends[:, 0] > mean + 1e-12) | (ends[:, 1] < mean - 1e-12)
        assert weights[missed].sum() <= 1 - confidence


def test_a_normal_interval_in_its_place_would_be_noticed() -> None:
    n, rho = 12, 0.05

    def broken(k: int) -> float:
        p = k / n
        return float(p - stats.norm.ppf(1 - rho) * np.sqrt(p * (1 - p) / n))

    assert max(exact_miss_rate(broken, n, p) for p in np.linspace(0.01, 0.99, 99)) > 2 * rho


def test_means_of_unequal_distributions_are_bounded() -> None:
    # Two strata: 6 values that are 1 with probability ½ ± d each; the promise is about the mean of means, ½.
    rho, half = 0.1, 6
    bounds = [mean_lower_bound([1.0] * k + [0.0] * (2 * half - k), 1.0, rho) for k in range(2 * half + 1)]
    for d in np.linspace(0, 0.5, 11):
        sums = np.convolve(
            stats.binom.pmf(range(half + 1), half, 0.5 + d), stats.binom.pmf(range(half + 1), half, 0.5 - d)
        )
        assert sums[np.array(bounds) > 0.5].sum() <= rho
