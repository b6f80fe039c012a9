"""Intervals over the inputs cover as often as they say, and comparisons raise no more false alarms: enumerated."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.intervals import (
    difference_interval,
    holm,
    mcnemar,
    mean_interval,
    mean_lower_bound,
    population_lower_bound,
    rate_interval,
    sign_flip_p_value,
)
from smoothcert.bounds.fixed import clopper_pearson_lower
from tests.guarantees.exact import TooOftenError, assert_rate_not_below, assert_rate_within, exact_miss_rate

ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_rates_are_covered(n, confidence):
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
def test_the_population_statement_holds_though_certificates_fail(m, alpha, rho):
    values = [population_lower_bound(k, m, alpha, rho) for k in range(m + 1)]
    shares = [0.0, *np.linspace(0.001, 0.999, 60), *(v * (1 - 1e-9) for v in values[:: max(1, m // 50)])]
    for share in shares:
        assert population_miss_rate(values.__getitem__, m, share, alpha) <= rho * ROUNDING


def test_the_population_statement_would_break_if_alpha_were_not_subtracted():
    m, alpha, rho = 400, 0.1, 0.01
    broken = [clopper_pearson_lower(k, m, rho) for k in range(m + 1)]
    assert population_miss_rate(broken.__getitem__, m, 0.0, alpha) > 0.99
    assert population_miss_rate(broken.__getitem__, m, 0.5, alpha) > 0.3


@pytest.mark.parametrize("n", [1, 12, 60])
@pytest.mark.parametrize("rho", [0.2, 0.05, 0.001])
def test_means_of_values_at_both_ends_are_bounded(n, rho):
    bounds = [mean_lower_bound([2.0] * k + [0.0] * (n - k), 2.0, rho) / 2 for k in range(n + 1)]
    for p in [*np.linspace(0.002, 0.998, 120), *(b * (1 - 1e-9) for b in bounds)]:
        assert exact_miss_rate(bounds.__getitem__, n, p) <= rho


@pytest.mark.parametrize("middle", [0.1, 0.5, 0.9])
def test_means_of_three_values_are_bounded(middle):
    n, confidence = 10, 0.9
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


def test_means_of_unequal_distributions_are_bounded():
    # Two strata: 6 values that are 1 with probability ½ ± d each; the promise is about the mean of means, ½.
    rho, half = 0.1, 6
    bounds = [mean_lower_bound([1.0] * k + [0.0] * (2 * half - k), 1.0, rho) for k in range(2 * half + 1)]
    for d in np.linspace(0, 0.5, 11):
        sums = np.convolve(
            stats.binom.pmf(range(half + 1), half, 0.5 + d), stats.binom.pmf(range(half + 1), half, 0.5 - d)
        )
        assert sums[np.array(bounds) > 0.5].sum() <= rho


def outcomes(n: int) -> list[tuple[int, int, int]]:
    """(only first, only second, both or neither) for n inputs."""
    return [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]


@pytest.mark.parametrize("n", [5, 30])
def test_mcnemar_is_wrong_no_more_often_than_its_level(n):
    every = outcomes(n)
    p_values = np.array([mcnemar(i, j) for i, j, _ in every])
    for alone in (0.01, 0.1, 0.3, 0.5):
        weights = stats.multinomial.pmf(every, n, (alone, alone, 1 - 2 * alone))
        for level in (0.2, 0.05, 0.01, *np.unique(p_values)[:20]):
            assert weights[p_values <= level].sum() <= level * (1 + 1e-9)


def uncovered(ends: np.ndarray, n: int, first: float, second: float) -> float:
    """The probability that the true difference lies outside, summed over all outcomes."""
    weights = stats.multinomial.pmf(outcomes(n), n, (first, second, 1 - first - second))
    difference = second - first
    return float(weights[(ends[:, 0] > difference + 1e-12) | (ends[:, 1] < difference - 1e-12)].sum())


CHANCES = [
    (a, b) for a in (0.0, 0.02, 0.1, 0.25, 0.5, 0.8) for b in (0.0, 0.02, 0.1, 0.3, 0.5, 0.9) if a + b <= 1
]


@pytest.mark.parametrize(("n", "confidence"), [(1, 0.9), (12, 0.8), (40, 0.95)])
def test_paired_differences_are_covered(n, confidence):
    ends = np.array([difference_interval(i, j, n, confidence) for i, j, _ in outcomes(n)])
    for first, second in CHANCES:
        assert uncovered(ends, n, first, second) <= 1 - confidence


def test_the_usual_normal_interval_would_be_noticed():
    n = 40

    def wald(i: int, j: int) -> tuple[float, float]:
        d = (j - i) / n
        half = 1.96 * math.sqrt(max(0.0, (i + j) / n - d * d) / n)
        return d - half, d + half

    ends = np.array([wald(i, j) for i, j, _ in outcomes(n)])
    assert max(uncovered(ends, n, *chances) for chances in CHANCES) > 0.2


def test_an_interval_without_zero_means_a_small_p_value():
    for i, j, _ in outcomes(40):
        low, high = difference_interval(i, j, 40, 0.95)
        assert low <= (j - i) / 40 <= high
        if low > 0 or high < 0:
            assert mcnemar(i, j) <= 0.05
        elif i + j:
            assert mcnemar(i, j) > 0.045 * (1 - 1e-9)


def test_holm_keeps_the_chance_of_any_false_alarm():
    """Five radii of runs that are equally good: nested, so strongly dependent, as radii are."""
    rng = np.random.default_rng(0)
    trials, inputs, level, false_alarms, uncorrected = 3000, 60, 0.1, 0, 0
    radii = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    for _ in range(trials):
        a, b = (rng.random((inputs, 1)) >= radii for _ in range(2))
        p_values = [mcnemar(int(i), int(j)) for i, j in zip((a & ~b).sum(0), (b & ~a).sum(0))]
        false_alarms += min(holm(p_values)) <= level
        uncorrected += min(p_values) <= level
    assert_rate_within(false_alarms, trials, level)
    with pytest.raises(TooOftenError):
        assert_rate_within(uncorrected, trials, level)


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "generators"), [(1, 16), (3, 16), (10, 16), (9, 3), (12, 6), (14, 10)])
def test_sign_flips_are_wrong_no_more_often_than_their_level(inputs, generators):
    """Under interchangeable runs every sign pattern is as likely: all are enumerated, at every level there is."""
    sizes = np.round(np.random.default_rng(inputs).exponential(size=inputs), 2) + 0.01
    p_values = np.array(
        [sign_flip_p_value(sizes * signs, generators) for signs in itertools.product((-1, 1), repeat=inputs)]
    )
    levels, counts = np.unique(p_values, return_counts=True)
    assert (counts.cumsum() / len(p_values) <= levels + 1e-12).all()
    if inputs <= generators and inputs > 1:
        assert levels[0] == 2 / 2**inputs  # and none of the level is wasted
        assert counts[0] == 2


def test_sign_flips_of_skewed_radii():
    """Many inputs, many of them without a difference, and few patterns, so that their chance weighs in."""
    rng = np.random.default_rng(1)
    trials = 4000
    radii = np.maximum(rng.exponential(size=(2, trials, 40)) - 0.5, 0.0)
    p_values = np.array([sign_flip_p_value(d, 7) for d in radii[1] - radii[0]])
    for level in (0.01, 0.025, 0.05, 0.2):
        assert_rate_within(int((p_values <= level).sum()), trials, level)
    assert_rate_not_below(int((p_values <= 0.2).sum()), trials, 0.17)


def test_patterns_that_are_drawn_once_and_kept_would_be_noticed():
    """A fixed list of random flips, with the usual 1 added above and below, is wrong more often than its level."""
    rng = np.random.default_rng(0)
    inputs, flips = 12, 39
    kept = np.vstack([np.ones(inputs), rng.choice((-1, 1), size=(flips, inputs))])
    sizes = np.random.default_rng(inputs).exponential(size=inputs)
    every = sizes * np.array(list(itertools.product((-1, 1), repeat=inputs)))
    sums = np.abs(every @ kept.T)
    p_values = (sums >= sums[:, :1] - 1e-9).mean(axis=1)
    levels, counts = np.unique(p_values, return_counts=True)
    assert (counts.cumsum() / len(p_values) > levels).any()
