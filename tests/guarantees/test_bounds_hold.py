"""“With probability 1−α over the votes, the bounds hold together”, for every bound; and broken ones are noticed."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv

from smoothcert.bounds.base import BOUNDS, Bound, ClassBounds
from smoothcert.bounds.fixed import (
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    top_two_p_value,
    two_class,
)
from smoothcert.tally import SOFT_UNIT, Tally
from tests.bounds.test_bounds import test_soft_bounds_equal_their_formulas as check_soft_formulas
from tests.guarantees.exact import (
    TooOftenError,
    WastefulError,
    assert_exact_lower_coverage,
    hard_tally,
    joint_miss_rate,
    likely_counts,
    soft_tally,
)


def mirrored(successes: int, n: int, alpha: float) -> float:
    """U bounds p from above exactly if 1 − U bounds 1 − p, the success rate of the other votes, from below."""
    return 1 - clopper_pearson_upper(n - successes, n, alpha)


@pytest.mark.parametrize("bound", [clopper_pearson_lower, mirrored])
@pytest.mark.parametrize(("n", "alpha"), [(1, 0.3), (5, 0.1), (30, 0.05), (100, 0.001)])
def test_clopper_pearson_misses_alpha_of_the_time_at_worst(bound, n, alpha):
    assert_exact_lower_coverage(partial(bound, n=n, alpha=alpha), n, alpha)


def test_broken_lower_bounds_are_noticed():
    for broken, error in [
        (lambda k: float(betaincinv(k, 30 - k, 0.05)) if k < 30 else 0.05 ** (1 / 29), TooOftenError),
        (lambda k: max(1e-9, k / 30 - 1.645 * math.sqrt(k / 30 * (1 - k / 30) / 30)), TooOftenError),
        (lambda k: clopper_pearson_lower(k, 30, 0.02), WastefulError),
    ]:
        with pytest.raises(error):
            assert_exact_lower_coverage(broken, 30, 0.05)


@pytest.mark.parametrize("name", ["clopper-pearson", "top-two", "two-class"])
@pytest.mark.parametrize(
    "p",
    [
        *[
            (0.5, 0.5),
            (0.5, 0.3, 0.2),
            (0.4, 0.3, 0.3),
            (0.3,) + (0.07,) * 10,
            (0.9, 0.1),
            (0.02, 0.49, 0.49),
        ],
        *[(0.45, 0.1, 0.09, 0.09, 0.09, 0.09, 0.09), (0.9, 0.05, 0.05), (0.5, 0.5, 0.0), (0.7, 0.3, 0.0)],
    ],
)
def test_hard_bounds_hold_together(name, p):
    for n, alpha in ((15, 0.2), (25, 0.02), (25, 0.3), (100, 0.1)):
        assert joint_miss_rate(BOUNDS[name], p, n, alpha) <= alpha


def test_a_share_of_alpha_that_is_spent_twice_is_noticed(monkeypatch):
    monkeypatch.setattr("smoothcert.bounds.fixed.without_part", lambda alpha, part: alpha * (1 + 1 / part))
    cases = [(k / 200, 1 - k / 200, 0.0) for k in range(20, 190)]
    assert max(joint_miss_rate(BOUNDS["two-class"], p, 9, 0.3) for p in cases) > 0.3


def test_two_class_spends_its_alpha_and_no_more():
    # One strong rival: both halves of α are at risk, and both are used up to the votes' granularity.
    p = (0.5, 0.3, 0.2)
    assert 0.13 < joint_miss_rate(BOUNDS["two-class"], p, 1000, 0.2) <= 0.2
    assert joint_miss_rate(lambda tally, c, alpha: two_class(tally, c, 2 * alpha), p, 1000, 0.2) > 0.2


def test_a_rival_chosen_by_hand_is_noticed():
    def broken(tally: Tally) -> ClassBounds:
        lower = clopper_pearson_lower(tally.counts[0], tally.n, 0.05)
        return ClassBounds(lower, clopper_pearson_upper(min(tally.counts[1:]), tally.n, 0.05))

    missed = sum(
        float(stats.multinomial.pmf((a, b, 100 - a - b), 100, (0.4, 0.3, 0.3)))
        for a in range(101)
        for b in range(101 - a)
        if (bounds := broken(hard_tally((a, b, 100 - a - b)))).lower > 0.4 or bounds.upper < 0.3
    )
    assert missed > 0.1


def test_votes_that_choose_and_certify_are_noticed():
    """Eight equal classes: whichever leads is "certified" above its true probability far too often."""
    p, n, alpha = (1 / 8,) * 8, 50, 0.05
    missed = sum(
        8 * chance  # whichever of the eight leads
        for chance, counts in likely_counts(n, p)
        if counts[0] > max(counts[1:]) and clopper_pearson(hard_tally(counts), 0, alpha).lower > p[0]
    )
    assert missed > 2 * alpha


@pytest.mark.parametrize("name", ["hoeffding", "bernstein"])
@pytest.mark.parametrize("votes", [(1.0, 0.0), (0.9, 0.2), (0.6, 0.55)])
def test_soft_bounds_hold_for_votes_of_two_kinds(name, votes):
    """Exactly, over all numbers of votes of the first kind: 0 and 1 are the widest that there are."""
    for n, alpha in ((2, 0.2), (30, 0.2), (100, 0.05)):
        kinds = [np.repeat(votes, (k, n - k)) for k in range(n + 1)]
        tallies = [soft_tally(np.stack([z, 1 - z], axis=1)) for z in kinds]
        lower = np.array([BOUNDS[name](tally, 0, alpha).lower for tally in tallies])
        for p in np.linspace(0.02, 0.98, 25):
            mean = votes[1] + (votes[0] - votes[1]) * p
            assert stats.binom.pmf(np.arange(n + 1), n, p)[lower > mean].sum() <= alpha


def test_n_in_place_of_n_minus_one_is_noticed(monkeypatch):
    def broken(tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        n, log_term = tally.n, math.log(2 / alpha)
        mean = tally.sums[chosen] / (n * SOFT_UNIT)
        variance = max(0.0, tally.squares[chosen] / (n * SOFT_UNIT) - mean**2)
        lower = max(0.0, mean - math.sqrt(2 * variance * log_term / n) - 7 * log_term / (3 * n))
        return ClassBounds(lower, 1.0 - lower)

    monkeypatch.setitem(BOUNDS._members, "bernstein", Bound("bernstein", "soft", False, "", broken))
    with pytest.raises(AssertionError):
        check_soft_formulas()


@pytest.mark.parametrize("p", [(0.501, 0.499), (0.36, 0.34, 0.3), (0.26, 0.25, 0.25, 0.24), (0.1,) * 10])
def test_predict_is_wrong_with_probability_alpha_at_most(p):
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
