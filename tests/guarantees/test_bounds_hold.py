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
    assert_rate_within,
    exact_miss_rate,
    soft_tally,
)
from tests.guarantees.exact import joint_miss_rate, likely_counts


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
        assert joint_miss_rate(BOUNDS[name], p, n, alpha) <= alpha


@pytest.mark.parametrize("name", ["top-two", "two-class"])
@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_the_two_bounds_miss_together_with_probability_alpha_at_most(name: str, alpha: float) -> None:
    cases = [(0.4, 0.3, 0.3), (0.02, 0.49, 0.49), (0.9, 0.05, 0.05), (0.5, 0.5, 0.0), (0.7, 0.3, 0.0)]
    assert max(joint_miss_rate(BOUNDS[name], p, 25, alpha) for p in cases) <= alpha


def test_a_share_of_alpha_that_is_spent_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoothcert.bounds.exact.without_part", lambda alpha, part: alpha * (1 + 1 / part))
    cases = [(k / 200, 1 - k / 200, 0.0) for k in range(20, 190)]
    assert max(joint_miss_rate(BOUNDS["two-class"], p, 9, 0.3) for p in cases) > 0.3


def test_two_class_spends_its_alpha() -> None:
    # One strong rival: both halves of α are at risk, and both are used up to the votes' granularity.
    assert 0.13 < joint_miss_rate(BOUNDS["two-class"], (0.5, 0.3, 0.2), 1000, 0.2) <= 0.2


def beta(a: float, b: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.beta(a, b, size=n)


@pytest.mark.parametrize("name", ["hoeffding", "bernstein"])
@pytest.mark.parametrize("votes", [(1.0, 0.0), (0.9, 0.2), (0.6, 0.55)])
def test_soft_bounds_hold_for_votes_of_two_kinds(name: str, votes: tuple[float, float]) -> None:
    """Exactly, over all numbers of votes of the first kind: 0 and 1 are the widest that there are."""
    for n, alpha in ((2, 0.2), (30, 0.2), (100, 0.05)):
        kinds = [np.repeat(votes, (k, n - k)) for k in range(n + 1)]
        tallies = [soft_tally(np.stack([z, 1 - z], axis=1)) for z in kinds]
        lower = np.array([BOUNDS[name](tally, 0, alpha).lower for tally in tallies])
        for p in np.linspace(0.02, 0.98, 25):
            mean = votes[1] + (votes[0] - votes[1]) * p
            assert stats.binom.pmf(np.arange(n + 1), n, p)[lower > mean].sum() <= alpha


@pytest.mark.campaign
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


@pytest.mark.parametrize("p", [(0.501, 0.499), (0.36, 0.34, 0.3), (0.26, 0.25, 0.25, 0.24), (0.1,) * 10])
def test_predict_is_wrong_with_probability_alpha_at_most(p: Sequence[float]) -> None:
    """Every class but the first, with votes that tell it from the strongest of the others; a tie tells nothing."""
    alpha, n = 0.1, 60
    wrong = 0.0
    for leader in range(1, len(p)):
        others = [share for c, share in enumerate(p) if c != leader]
        wrong += sum(
            chance
            for chance, counts in likely_counts(n, [p[leader], *others])
            if counts[0] > max(counts[1:]) and top_two_p_value(counts[0], max(counts[1:])) <= alpha
        )
    assert wrong + 1e-6 <= alpha
