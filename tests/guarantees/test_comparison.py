"""Comparisons raise no more false alarms than they say: enumerated where possible, else simulated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.paired import difference_interval, holm, mcnemar, sign_flip_p_value
from tests.guarantees.coverage import TooOftenError, assert_rate_not_below, assert_rate_within


def outcomes(n: int) -> list[tuple[int, int, int]]:
    """(only first, only second, both or neither) for n inputs."""
    return [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]


@pytest.mark.parametrize("n", [5, 30])
def test_mcnemar_is_wrong_no_more_often_than_its_level(n: int) -> None:
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
def test_paired_differences_are_covered(n: int, confidence: float) -> None:
    ends = np.array([difference_interval(i, j, n, confidence) for i, j, _ in outcomes(n)])
    for first, second in CHANCES:
        assert uncovered(ends, n, first, second) <= 1 - confidence


def test_the_usual_normal_interval_would_be_noticed() -> None:
    n = 40

    def wald(i: int, j: int) -> tuple[float, float]:
        d = (j - i) / n
        half = 1.96 * math.sqrt(max(0.0, (i + j) / n - d * d) / n)
        return d - half, d + half

    ends = np.array([wald(i, j) for i, j, _ in outcomes(n)])
    assert max(uncovered(ends, n, *chances) for chances in CHANCES) > 0.2


def test_an_interval_without_zero_means_a_small_p_value() -> None:
    for i, j, _ in outcomes(40):
        low, high = difference_interval(i, j, 40, 0.95)
        assert low <= (j - i) / 40 <= high
        if low > 0 or high < 0:
            assert mcnemar(i, j) <= 0.05
        elif i + j:
            assert mcnemar(i, j) > 0.045 * (1 - 1e-9)


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
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


@pytest.mark.parametrize(("inputs", "generators"), [(1, 16), (3, 16), (10, 16), (9, 3), (12, 6), (14, 10)])
def test_sign_flips_are_wrong_no_more_often_than_their_level(inputs: int, generators: int) -> None:
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


def test_sign_flips_of_skewed_radii() -> None:
    """Many inputs, many of them without a difference, and few patterns, so that their chance weighs in."""
    rng = np.random.default_rng(1)
    trials = 4000
    radii = np.maximum(rng.exponential(size=(2, trials, 40)) - 0.5, 0.0)
    p_values = np.array([sign_flip_p_value(d, 7) for d in radii[1] - radii[0]])
    for level in (0.01, 0.025, 0.05, 0.2):
        assert_rate_within(int((p_values <= level).sum()), trials, level)
    assert_rate_not_below(int((p_values <= 0.2).sum()), trials, 0.17)


def test_patterns_that_are_drawn_once_and_kept_would_be_noticed() -> None:
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
