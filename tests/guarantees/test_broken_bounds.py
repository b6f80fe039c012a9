"""The guarantee checks have teeth: bounds broken in the ways they get broken make them fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv

from smoothcert.bounds import (
    ClassBounds,
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    two_class,
)
from smoothcert.tally import SOFT_UNIT, Tally
from tests.bounds.test_bounds import test_soft_bounds_equal_their_formulas as check_soft_formulas
from tests.guarantees.coverage import (
    TooOftenError,
    WastefulError,
    assert_exact_lower_coverage,
    assert_rate_within,
    hard_tally,
)
from tests.guarantees.exact import joint_miss_rate

TRIALS = 2_000


def test_one_vote_too_few_in_clopper_pearson_is_noticed() -> None:
    def broken(k: int) -> float:
        return float(betaincinv(k, 30 - k, 0.05)) if k < 30 else 0.05 ** (1 / 29)

    with pytest.raises(TooOftenError):
        assert_exact_lower_coverage(broken, 30, 0.05)


def test_a_normal_approximation_is_noticed() -> None:
    def broken(k: int) -> float:
        p = k / 30
        return max(1e-9, p - 1.645 * math.sqrt(p * (1 - p) / 30))

    with pytest.raises(TooOftenError):
        assert_exact_lower_coverage(broken, 30, 0.05)


def test_a_wasteful_bound_is_noticed() -> None:
    with pytest.raises(WastefulError):
        assert_exact_lower_coverage(lambda k: clopper_pearson_lower(k, 30, 0.02), 30, 0.05)


def test_alpha_in_place_of_half_alpha_is_noticed() -> None:
    def broken(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        return two_class(tally, chosen, min(2 * alpha, 0.999))

    assert joint_miss_rate(broken, (0.5, 0.3, 0.2), 1000, 0.2) > 0.2


def test_a_rival_chosen_by_hand_is_noticed() -> None:
    def broken(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        lower = clopper_pearson_lower(tally.counts[chosen], tally.n, alpha / 2)
        smallest = min(count for c, count in enumerate(tally.counts) if c != chosen)
        return ClassBounds(lower, clopper_pearson_upper(smallest, tally.n, alpha / 2))

    missed = sum(
        float(stats.multinomial.pmf((a, b, 100 - a - b), 100, (0.4, 0.3, 0.3)))
        for a in range(101)
        for b in range(101 - a)
        if (bounds := broken(hard_tally((a, b, 100 - a - b)), 0, 0.1)).lower > 0.4 or bounds.upper < 0.3
    )
    assert missed > 0.1


def test_votes_that_choose_and_certify_are_noticed() -> None:
    # Eight equal classes: whichever leads is "certified" above its true probability far too often.
    p, n, alpha = (1 / 8,) * 8, 50, 0.05
    votes = np.random.default_rng(3).multinomial(n, p, size=TRIALS)
    misses = sum(
        clopper_pearson(hard_tally(counts), int(counts.argmax()), alpha).lower > p[0] for counts in votes
    )
    with pytest.raises(TooOftenError):
        assert_rate_within(misses, TRIALS, alpha)


def test_n_in_place_of_n_minus_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from smoothcert.bounds import BOUNDS, Bound

    def broken(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        n, log_term = tally.n, math.log(2 / alpha)
        assert tally.sums is not None
        assert tally.squares is not None
        mean = tally.sums[chosen] / (n * SOFT_UNIT)
        variance = max(0.0, tally.squares[chosen] / (n * SOFT_UNIT) - mean**2)
        lower = max(0.0, mean - math.sqrt(2 * variance * log_term / n) - 7 * log_term / (3 * n))
        return ClassBounds(lower, 1.0 - lower)

    monkeypatch.setitem(BOUNDS._members, "bernstein", Bound("bernstein", "soft", False, "", broken))
    with pytest.raises(AssertionError):
        check_soft_formulas()
