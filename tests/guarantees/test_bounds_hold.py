"""“With probability 1−α over the votes, the bounds hold together”, for every bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from scipy import stats

from smoothcert.bounds import BOUNDS, clopper_pearson_lower, clopper_pearson_upper, top_two_p_value
from tests.guarantees.coverage import (
    assert_exact_lower_coverage,
    assert_rate_not_below,
    assert_rate_within,
    exact_miss_rate,
    hard_tally,
    joint_misses,
    soft_tally,
)

TRIALS = 20_000


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.3), (5, 0.1), (30, 0.05), (100, 0.001)])
def test_clopper_pearson_lower_misses_alpha_of_the_time_at_worst(n: int, alpha: float) -> None:
    assert_exact_lower_coverage(partial(clopper_pearson_lower, n=n, alpha=alpha), n, alpha)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.3), (5, 0.1), (30, 0.05), (100, 0.001)])
def test_clopper_pearson_upper_misses_alpha_of_the_time_at_worst(n: int, alpha: float) -> None:
    # U bounds p from above exactly if 1 − U bounds 1 − p, the success rate of the other votes, from below.
    assert_exact_lower_coverage(lambda k: 1 - clopper_pearson_upper(n - k, n, alpha), n, alpha)


@pytest.mark.parametrize("p", np.linspace(0.05, 0.95, 19))
def test_clopper_pearson_lower_holds_between_its_jumps_too(p: float) -> None:
    assert exact_miss_rate(lambda k: clopper_pearson_lower(k, 40, 0.1), 40, p) <= 0.1


@pytest.mark.parametrize("name", ["clopper-pearson", "top-two", "two-class"])
@pytest.mark.parametrize(
    "p",
    [
        (0.5, 0.5),
        (0.5, 0.3, 0.2),
        (0.4, 0.3, 0.3),
        (0.3,) + (0.07,) * 10,
        (0.9, 0.1),
        (0.02, 0.49, 0.49),
        (0.45, 0.1, 0.09, 0.09, 0.09, 0.09, 0.09),
    ],
)
def test_hard_bounds_hold_together(name: str, p: tuple[float, ...]) -> None:
    for n, alpha in ((15, 0.2), (100, 0.1)):
        assert_rate_within(joint_misses(BOUNDS[name], p, n, alpha, TRIALS, seed=n), TRIALS, alpha)


def exact_joint_miss_rate(name: str, n: int, alpha: float, p: tuple[float, float, float]) -> float:
    """P[L > p_A or U < the larger rival], summed over all counts of three classes."""
    missed = 0.0
    for a in range(n + 1):
        for b in range(n - a + 1):
            bounds = BOUNDS[name](hard_tally((a, b, n - a - b)), 0, alpha)
            if bounds.lower > p[0] or bounds.upper < max(p[1:]):
                missed += float(stats.multinomial.pmf((a, b, n - a - b), n, p))
    return missed


@pytest.mark.parametrize("name", ["top-two", "two-class"])
@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_the_two_bounds_miss_together_with_probability_alpha_at_most(name: str, alpha: float) -> None:
    cases = [(0.4, 0.3, 0.3), (0.02, 0.49, 0.49), (0.9, 0.05, 0.05), (0.5, 0.5, 0.0), (0.7, 0.3, 0.0)]
    assert max(exact_joint_miss_rate(name, 25, alpha, p) for p in cases) <= alpha


def test_a_share_of_alpha_that_is_spent_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoothcert.bounds.exact.without_part", lambda alpha, part: alpha * (1 + 1 / part))
    cases = [(k / 200, 1 - k / 200, 0.0) for k in range(20, 190)]
    assert max(exact_joint_miss_rate("two-class", 9, 0.3, p) for p in cases) > 0.3


def test_two_class_spends_its_alpha() -> None:
    # One strong rival: both halves of α are at risk, and both are used up to the votes' granularity.
    misses = joint_misses(BOUNDS["two-class"], (0.5, 0.3, 0.2), 1000, 0.2, TRIALS, seed=1)
    assert_rate_not_below(misses, TRIALS, 0.13)


def beta(a: float, b: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.beta(a, b, size=n)


@pytest.mark.parametrize("name", ["hoeffding", "bernstein"])
@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng, n: (rng.random(n) < 0.5).astype(float), 0.5),
        (lambda rng, n: (rng.random(n) < 0.97).astype(float), 0.97),
        (beta(0.5, 0.5), 0.5),
        (beta(8.0, 2.0), 0.8),
        (lambda rng, n: np.full(n, 0.7), 0.7),
    ],
)
def test_soft_bounds_hold(
    name: str, draw: Callable[[np.random.Generator, int], np.ndarray], mean: float
) -> None:
    rng = np.random.default_rng(7)
    trials, alpha = 3000, 0.2
    for n in (2, 30):
        misses = 0
        for _ in range(trials):
            z = draw(rng, n)
            misses += BOUNDS[name](soft_tally(np.stack([z, 1 - z], axis=1)), 0, alpha).lower > mean
        assert_rate_within(misses, trials, alpha)


@pytest.mark.parametrize("p", [(0.501, 0.499), (0.36, 0.34, 0.3), (0.26, 0.25, 0.25, 0.24)])
def test_predict_is_wrong_at_most_alpha_of_the_time(p: Sequence[float]) -> None:
    alpha, n = 0.1, 60
    votes = np.random.default_rng(11).multinomial(n, p, size=TRIALS)
    wrong = 0
    for counts in votes:
        second, first = np.argsort(counts, kind="stable")[-2:]
        wrong += first != 0 and top_two_p_value(int(counts[first]), int(counts[second])) <= alpha
    assert_rate_within(int(wrong), TRIALS, alpha)
