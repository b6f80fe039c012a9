"""Intervals over inputs: values against scipy, words, refusals. How often they fail: tests/guarantees."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.evidence import radius_ceiling
from smoothcert.analysis.intervals import (
    acr_interval,
    mean_interval,
    mean_lower_bound,
    percent_down,
    percent_up,
    population_lower_bound,
    rate_interval,
    robust_radius_lower_bound,
    statement,
)
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.records import Record

from .made_runs import made_run
from .texts import numbers


def test_rates_and_population_bounds_are_scipys():
    for successes, total in ((0, 10), (3, 10), (10, 10), (612, 1000), (9999, 10_000)):
        expected = stats.binomtest(successes, total).proportion_ci(0.95, method="exact")
        low, high = rate_interval(successes, total)
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9)
        # At its own ends the interval leaves out no more than it may.
        assert stats.binom.sf(successes - 1, total, low) <= 0.025 or successes == 0
        assert stats.binom.cdf(successes, total, high) <= 0.025 or successes == total
    expected = stats.binomtest(612, 1000, alternative="greater").proportion_ci(0.99, method="exact").low
    assert population_lower_bound(612, 1000, 0.001, 0.01) == pytest.approx(expected - 0.001, rel=1e-9)
    assert population_lower_bound(1, 1000, 0.01, 0.01) == 0.0


def test_bounds_of_means_are_tight():
    best = 0.01 ** (1 / 200)
    assert 0.96 < mean_lower_bound([1.0] * 200, 1.0, 0.01) < best
    values = np.random.default_rng(0).beta(2, 3, 500)
    low, high = mean_interval(values, 0.0, 1.0)
    normal = 1.96 * values.std(ddof=1) / math.sqrt(500)
    hoeffding = math.sqrt(math.log(2 / 0.05) / 1000)
    assert low < values.mean() - normal < values.mean() + normal < high
    assert high - low < 2 * 0.6 * hoeffding
    values = np.random.default_rng(1).random(50)
    low, high = mean_interval(values, 0.0, 1.0)
    assert mean_interval(np.sort(values), 0.0, 1.0) == (low, high)
    assert mean_interval(4 * values - 1, -1.0, 3.0) == pytest.approx((4 * low - 1, 4 * high - 1), abs=1e-9)
    mirrored = mean_interval(1 - values, 0.0, 1.0)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)
    assert mean_lower_bound([0.0, 0.0], 1.0, 0.05) == 0.0
    assert mean_interval([0.5], 0.0, 1.0) == pytest.approx((0.0125, 0.9875), abs=0.02)


def test_bad_values():
    for bound, arguments, told in [
        (mean_lower_bound, ([], 1.0, 0.05), r"\(0,\)"),
        (mean_lower_bound, ([0.5, 1.5], 1.0, 0.05), r"1\.5.*\[0, 1\]"),
        (mean_lower_bound, ([0.5, -0.1], 1.0, 0.05), r"-0\.1.*\[0, 1\]"),
        (mean_lower_bound, ([math.nan], 1.0, 0.05), r"nan.*\[0, 1\]"),
        (mean_lower_bound, ([0.5], math.inf, 0.05), "ceiling.*inf"),
        (mean_lower_bound, ([0.0], 0.0, 0.05), r"ceiling.*\b0\.0\b"),
        (mean_lower_bound, ([0.5], 1.0, 0.0), r"rho.*0\.0"),
        (mean_interval, ([0.5], 1.0, 0.0), r"\[1\.0, 0\.0\]"),
        (rate_interval, (1, 2, 1.0), r"confidence.*1\.0"),
        (rate_interval, (3, 2), r"\b0\b.*\b2\b.*\b3\b"),
        (statement, (made_run(), -1.0), r"radius.*-1\.0"),
        (statement, (made_run(), 0.5, 0.99, 0), r"among.*\b0\b"),
    ]:
        with pytest.raises(InvalidValueError, match=told):
            bound(*arguments)


# 100 inputs: 70 right at 0.6, 20 wrong, 10 abstentions.
HUNDRED = (
    *(Record(i, 0, 0, 0.6, 0.25, 1.0) for i in range(70)),
    *(Record(i, 0, 1, 0.6, 0.25, 1.0) for i in range(70, 90)),
    *(Record(i, 0, -1, 0.0, 0.25, 1.0) for i in range(90, 100)),
)


def test_acr_interval_is_that_of_the_counted_radii():
    run = made_run(records=HUNDRED)
    ceiling = radius_ceiling(run)
    assert ceiling is not None
    low, high = acr_interval(run)
    assert (low, high) == pytest.approx(mean_interval([0.6] * 70 + [0.0] * 30, 0.0, ceiling), rel=1e-9)
    assert low < 0.42 < high
    plain = mean_lower_bound([0.6] * 70 + [0.0] * 30, ceiling, 0.05)
    assert robust_radius_lower_bound(run, 0.05) == pytest.approx(plain - 0.001 * ceiling, rel=1e-9)


def test_a_log_without_a_plan_needs_a_ceiling():
    log = made_run(records=HUNDRED, bound=None)
    with pytest.raises(RunError, match=r"bound.*\bn\b.*alpha.*ceiling="):
        acr_interval(log)
    assert acr_interval(log, ceiling=1.0)[0] > 0
    own = made_run(records=(replace(HUNDRED[0], sigma=0.3), *HUNDRED[1:]))
    with pytest.raises(RunError, match=r"σ.*ceiling="):
        acr_interval(own)


def test_the_statement_in_words_and_statements_that_cannot_be_made():
    run = made_run(records=HUNDRED)
    share = population_lower_bound(70, 100, 0.001, 0.01)
    assert 0.57 < share < 0.59
    percentage = math.floor(1000 * share) / 10
    assert numbers(statement(run, 0.5)) == [str(percentage), "0.5", "0.99"]
    assert "ℓ2" in statement(run, 0.5)
    assert numbers(statement(run, 0.7))[0] == "0.0"
    less, *rest = numbers(statement(run, 0.5, among=5))
    assert rest == ["0.5", "0.99", "4"]  # other statements
    assert float(less) < percentage
    with pytest.raises(RunError, match="--alpha"):
        statement(made_run(alpha=None), 0.5)
    with pytest.raises(RunError, match="made"):
        statement(made_run(records=()), 0.5)


def test_percentages_round_outwards():
    for share, below, above in (
        (0.6129, "61.2", "61.3"),
        (0.5, "50.0", "50.0"),
        (0.0, "0.0", "0.0"),
        (-0.0301, "-3.1", "-3.0"),
        (-0.00001, "-0.1", "0.0"),
        (1.0, "100.0", "100.0"),
        (0.00001, "0.0", "0.1"),
        (0.61298, "61.2", "61.3"),
        (1e-9, "0.0", "0.1"),
        (0.58, "57.9", "58.0"),  # the float is below 58 %
        (Fraction(58, 100), "58.0", "58.0"),
        (Fraction(-58, 100), "-58.0", "-58.0"),
    ):
        assert (percent_down(share), percent_up(share)) == (below, above)
    assert (percent_down(Fraction(999, 1000), 0), percent_up(Fraction(999, 1000), 0)) == ("99", "100")
    assert percent_down(1 - Fraction("0.00005"), 3) == "99.995"
