import itertools
import math

import pytest
from scipy.stats import binom

from smoothcert.analysis.metrics import (
    abstention_rate,
    average_certified_radius,
    certified_accuracy,
    guaranteed_fraction,
    smoothed_accuracy,
    summarise,
)
from smoothcert.errors import InvalidValueError, RunError

from .made_runs import FIVE_AND_TWO, made_run


def test_rates_by_hand():
    assert smoothed_accuracy(FIVE_AND_TWO) == 5 / 7
    assert abstention_rate(FIVE_AND_TWO) == 1 / 7
    assert average_certified_radius(FIVE_AND_TWO) == pytest.approx(2.2 / 7, rel=1e-15)
    accuracy = certified_accuracy(FIVE_AND_TWO, [0.0, 0.2, 0.3, 0.5, 0.50001, 1.0, 3.0])
    assert accuracy.tolist() == [5 / 7, 4 / 7, 3 / 7, 3 / 7, 1 / 7, 1 / 7, 0.0]


def test_runs_without_records_or_radii_are_errors():
    with pytest.raises(RunError, match="made"):
        summarise(made_run(records=()), [0.0])
    for metric in (smoothed_accuracy, abstention_rate, average_certified_radius):
        with pytest.raises(RunError):
            metric([])
    with pytest.raises(RunError, match=r"made.*norm"):
        summarise(made_run(norm=None), [0.0])


def test_the_population_statement():
    assert guaranteed_fraction(0.5, 100, 0.01, math.exp(-1)) == pytest.approx(
        0.5 - 0.01 - 0.014071247279470288 - 0.0033333333333333335, rel=1e-12
    )
    assert guaranteed_fraction(0.001, 100, 0.01, 0.5) == 0.0
    for m, alpha, rho in itertools.product(
        (1, 10, 100, 1000, 10_000, 1_000_000), (0.001, 0.01, 0.05, 0.4), (0.1, 0.01, 0.001, 1e-6)
    ):
        allowed = 1.0 - guaranteed_fraction(1.0, m, alpha, rho)
        assert binom.sf(math.floor(allowed * m), m, alpha) <= rho, (m, alpha, rho)


def test_population_statement_refuses():
    for fraction, m, alpha, rho, told in [
        (1.1, 10, 0.1, 0.1, r"certified_fraction.*1\.1"),
        (-0.1, 10, 0.1, 0.1, r"certified_fraction.*-0\.1"),
        (0.5, 0, 0.1, 0.1, r"\bm\b.*\b0\b"),
        (0.5, 10, 0, 0.1, r"alpha.*\b0\b"),
        (0.5, 10, 0.1, 1, r"rho.*\b1\b"),
    ]:
        with pytest.raises(InvalidValueError, match=told):
            guaranteed_fraction(fraction, m, alpha, rho)
