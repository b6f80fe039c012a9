"""Bounds against independent computations: exact tails, scipy.stats, and the formulas in rational arithmetic."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import betainccinv

from smoothcert.bounds.base import BOUNDS, ClassBounds
from smoothcert.bounds.fixed import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    least_prediction_votes,
    least_votes,
    top_two_p_value,
    unanimous,
)
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)
ALPHAS = st.sampled_from([0.5, 0.1, 0.05, 0.001, 1e-6, 1e-12])


def exact_upper_tail(k: int, n: int, p: float) -> mpmath.mpf:
    """P[Binomial(n, p) ≥ k] by the incomplete beta function in 40 digits."""
    return mpmath.betainc(k, n - k + 1, 0, mpmath.mpf(p), regularized=True)


@settings(max_examples=150)
@given(st.integers(1, 3000), st.data(), ALPHAS)
def test_lower_bound_is_on_the_safe_side_of_the_exact_one_and_close(n, data, alpha):
    k = data.draw(st.integers(1, n))
    lower = clopper_pearson_lower(k, n, alpha)
    with mpmath.workdps(40):
        assert exact_upper_tail(k, n, lower) <= alpha
    assert lower == pytest.approx(float(stats.beta.ppf(alpha, k, n - k + 1)), rel=1e-8)


@settings(max_examples=150)
@given(st.integers(1, 3000), st.data(), ALPHAS)
def test_upper_bound_mirrors_the_lower_one(n, data, alpha):
    k = data.draw(st.integers(0, n - 1))
    upper = clopper_pearson_upper(k, n, alpha)
    with mpmath.workdps(40):
        assert 1 - exact_upper_tail(k + 1, n, upper) <= alpha
    assert upper == pytest.approx(1 - clopper_pearson_lower(n - k, n, alpha), rel=1e-8)


def test_extreme_counts():
    assert clopper_pearson_lower(0, 10, 0.05) == 0.0
    assert clopper_pearson_upper(10, 10, 0.05) == 1.0
    assert clopper_pearson_lower(100_000, 100_000, 0.001) == pytest.approx(0.001 ** (1 / 100_000), rel=1e-12)
    assert clopper_pearson_upper(0, 1, 0.05) == pytest.approx(0.95)


@pytest.mark.parametrize(("first", "second"), [(10, 0), (60, 40), (51, 49), (0, 7), (5, 5), (900, 100)])
def test_top_two_test_equals_scipys(first, second):
    expected = stats.binomtest(max(first, second), first + second, 0.5).pvalue
    assert top_two_p_value(first, second) == pytest.approx(expected, rel=1e-9)


def soft_tally(values: list[int]) -> Tally:
    """Votes whose probability for class 0 is value/16: exact in binary."""
    sums = (sum(v * SOFT_UNIT // 16 for v in values), sum((16 - v) * SOFT_UNIT // 16 for v in values))
    squares = (
        sum(v * v * SOFT_UNIT // 256 for v in values),
        sum((16 - v) ** 2 * SOFT_UNIT // 256 for v in values),
    )
    wins = sum(v > 8 for v in values)
    return Tally(STREAM, 0, len(values), (wins, len(values) - wins), sums, squares)


@given(st.lists(st.integers(0, 16), min_size=2, max_size=60), ALPHAS)
def test_soft_bounds_equal_their_formulas(values, alpha):
    n, mean = len(values), Fraction(sum(values), 16 * len(values))
    sample_variance = sum((Fraction(v, 16) - mean) ** 2 for v in values) / (n - 1)
    with mpmath.workdps(40):

        def exact(number: Fraction) -> mpmath.mpf:
            return mpmath.mpf(number.numerator) / number.denominator

        log_term = mpmath.log(2 / mpmath.mpf(alpha))
        expected = {
            "hoeffding": exact(mean) - mpmath.sqrt(-mpmath.log(alpha) / (2 * n)),
            "bernstein": exact(mean)
            - mpmath.sqrt(2 * exact(sample_variance) * log_term / n)
            - 7 * log_term / (3 * (n - 1)),
        }
        for name, value in expected.items():
            bounds = BOUNDS[name](soft_tally(values), 0, alpha)
            assert bounds.lower <= max(0, value)
            assert bounds.lower == pytest.approx(float(max(0, value)), abs=1e-12)
            assert bounds.upper >= 1 - bounds.lower


def test_two_class_is_the_stated_formula():
    tally = Tally(STREAM, 0, 1000, (450, 100, 90, 360))
    bounds = BOUNDS["two-class"](tally, 0, 0.001)
    assert bounds.lower == pytest.approx(stats.beta.ppf(0.0005, 450, 551), rel=1e-9)
    assert bounds.upper == pytest.approx(stats.beta.ppf(1 - 0.0005, 361, 640), rel=1e-9)
    strong = BOUNDS["two-class"](Tally(STREAM, 0, 1000, (990, 10)), 0, 0.001)
    assert strong.upper == pytest.approx(1 - strong.lower)


def test_top_two_shares_alpha_as_31_to_1():
    bounds = BOUNDS["top-two"](Tally(STREAM, 0, 1000, (450, 100, 90, 360)), 0, 0.032)
    assert bounds.lower == pytest.approx(stats.beta.ppf(0.031, 450, 551), rel=1e-9)
    assert bounds.upper == pytest.approx(stats.beta.ppf(1 - 0.001, 361, 640), rel=1e-9)


@pytest.mark.parametrize("n", [10**3, 10**4, 10**5, 10**6])
def test_top_two_loses_nearly_nothing_where_votes_are_unanimous(n):
    # Φ⁻¹ of α^{1/n} is the papers' radius in units of σ: 3.8115 at n = 100 000.
    published = stats.norm.ppf(0.001 ** (1 / n))
    bounds = BOUNDS["top-two"](unanimous(n, 10, "hard"), 0, 0.001)
    assert 0.9993 * published < stats.norm.ppf(bounds.lower) < published


def test_one_sided_bounds_leave_the_rest_to_the_rivals():
    bounds = BOUNDS["clopper-pearson"](Tally(STREAM, 0, 1000, (900, 60, 40)), 0, 0.001)
    assert bounds.lower == pytest.approx(stats.beta.ppf(0.001, 900, 101), rel=1e-9)
    assert bounds.upper == pytest.approx(1 - bounds.lower)


@pytest.mark.parametrize(
    ("name", "least"),
    [("clopper-pearson", 10), ("top-two", 11), ("two-class", 11), ("hoeffding", 14), ("bernstein", 37)],
)
def test_least_votes_at_the_papers_alpha(name, least):
    bound = BOUNDS[name]
    assert least_votes(bound, 0.001) == least
    assert not bound(unanimous(least - 1, 2, bound.votes), 0, 0.001).separated


def test_least_prediction_votes():
    assert top_two_p_value(0, 0) == 1.0  # no votes decide nothing
    assert least_prediction_votes(0.001) == 11
    assert least_prediction_votes(0.5) == 2


@pytest.mark.parametrize("n", [10**8, 10**9])
def test_beyond_what_scipy_inverts_exactly_the_bounds_give_way(n):
    k = n - n // 1000
    assert 1 - clopper_pearson_lower(k, n, 0.001) > float(betainccinv(n - k + 1, k, 0.001))
    assert clopper_pearson_upper(n - k, n, 0.001) > float(betainccinv(n - k + 1, k, 0.001 * (1 - 9e-7)))
    assert clopper_pearson_lower(k, n, 0.001) == pytest.approx(k / n, rel=1e-5)


@pytest.mark.parametrize("name", ["top-two", "two-class"])
def test_an_alpha_that_cannot_be_shared_certifies_nothing(name):
    bounds = BOUNDS[name](unanimous(10**6, 2, "hard"), 0, 5e-324)
    assert (bounds.lower, bounds.upper) == (0.0, 1.0)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-20, 1))
def test_a_samplers_error_is_paid_on_both_sides(lower, upper, error):
    """Exactly, in rational numbers: rounded outwards, by a hair, and never out of [0, 1]."""
    paid = ClassBounds(lower, upper).paying(error)
    exact_lower = max(Fraction(0), Fraction(lower) - Fraction(error))
    exact_upper = min(Fraction(1), Fraction(upper) + Fraction(error))
    assert 0 <= exact_lower - Fraction(paid.lower) <= Fraction(1, 2**50)
    assert 0 <= Fraction(paid.upper) - exact_upper <= Fraction(1, 2**50)
    assert 0 <= paid.lower <= 1
    assert 0 <= paid.upper <= 1
