"""Anytime-valid bounds against their definitions: 50-digit arithmetic, closed forms, brute force."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainccinv, betaincinv, betaln

from smoothcert.bounds.anytime import look, look_share, mixture_lower, mixture_upper, next_look
from smoothcert.bounds.base import BOUNDS, Bound
from smoothcert.bounds.fixed import clopper_pearson_lower, clopper_pearson_upper, least_votes, unanimous
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import Certificate, largest_radius
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)
ALPHAS = st.sampled_from([0.999, 0.5, 0.1, 0.001, 1e-6, 1e-12, 1e-300, 5e-324])
LOGARITHMIC = st.floats(0, 9).map(lambda exponent: int(10**exponent))
SCHEDULED = ["looks", "looks-top-two", "looks-two-class"]


def hard(*counts: int) -> Tally:
    return Tally(STREAM, 0, sum(counts), counts)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    """Successes and n up to a billion, often near 0 or n."""
    n = draw(LOGARITHMIC)
    few = min(n, draw(LOGARITHMIC))
    return draw(st.sampled_from([0, n, few, n - few, n // 2])), n


def log_martingale(successes: int, n: int, p: mpmath.mpf) -> mpmath.mpf:
    """ln of B(A+½, n−A+½) / (π p^A (1−p)^{n−A}), as the definition has it."""
    half = mpmath.mpf(1) / 2
    value = mpmath.loggamma(successes + half) + mpmath.loggamma(n - successes + half)
    value -= mpmath.loggamma(n + 1) + mpmath.log(mpmath.pi)
    value -= successes * mpmath.log(p) if successes else 0
    return value - ((n - successes) * mpmath.log1p(-p) if successes < n else 0)


@settings(max_examples=200)
@given(counts(), ALPHAS)
def test_lower_bound_is_on_the_safe_side_of_the_exact_one_and_close(count, alpha):
    successes, n = count
    lower = mixture_lower(successes, n, alpha)
    assert 0 <= lower <= successes / n
    if lower == 0:
        assert successes == 0 or alpha < 1e-299
        return
    with mpmath.workdps(60):
        hurdle = -mpmath.log(mpmath.mpf(alpha))
        assert log_martingale(successes, n, mpmath.mpf(lower)) >= hurdle
        # A billionth nearer to p̂, in what is left of 1 if that is less, p isn't refuted any more.
        nearer = mpmath.mpf(lower) + min(lower, 1 - mpmath.mpf(lower)) / 10**9
        nearer = max(nearer, mpmath.mpf(lower) + 4 * math.ulp(lower))
        assert nearer * n >= successes or log_martingale(successes, n, nearer) < hurdle


@settings(max_examples=200)
@given(counts(), ALPHAS)
def test_upper_bound_is_on_the_safe_side_of_the_exact_one_and_close(count, alpha):
    successes, n = count
    upper = mixture_upper(successes, n, alpha)
    assert successes / n <= upper <= 1
    with mpmath.workdps(60):
        hurdle = -mpmath.log(mpmath.mpf(alpha))
        assert upper == 1 or log_martingale(successes, n, mpmath.mpf(upper)) >= hurdle
        nearer = mpmath.mpf(upper) * (1 - mpmath.mpf(10) ** -9)
        assert nearer * n <= successes or log_martingale(successes, n, nearer) < hurdle


@pytest.mark.parametrize("alpha", [0.5, 0.001, 1e-300])
def test_unanimous_votes_have_a_closed_form(alpha):
    for n in (1, 2, 31, 32, 33, 1000, 10**5, 10**9):
        with mpmath.workdps(50):
            weight = mpmath.beta(n + mpmath.mpf(1) / 2, mpmath.mpf(1) / 2) / mpmath.pi
            exact = (alpha * weight) ** (mpmath.mpf(1) / n)
            lower, upper = mixture_lower(n, n, alpha), mixture_upper(0, n, alpha)
            assert lower <= exact, n
            assert upper >= 1 - exact, n
            assert abs(lower - exact) <= 1e-11 * min(exact, 1 - exact) + 2.3e-16, n
            assert abs(upper - (1 - exact)) <= 1e-11 * (1 - exact), n


@pytest.mark.parametrize(("successes", "n"), [(1, 1), (1, 2), (7, 10), (40, 50), (199, 200), (3, 400)])
@pytest.mark.parametrize("alpha", [0.3, 0.01])
def test_bounds_are_the_ends_of_what_a_grid_search_leaves(successes, n, alpha):
    p = np.linspace(0, 1, 1_000_001)[1:-1]
    log_ratio = betaln(successes + 0.5, n - successes + 0.5) - math.log(math.pi)
    log_ratio -= successes * np.log(p) + (n - successes) * np.log1p(-p)
    left = p[log_ratio <= -math.log(alpha)]
    assert mixture_lower(successes, n, alpha) == pytest.approx(left[0], abs=2e-6)
    assert mixture_upper(successes, n, alpha) == pytest.approx(left[-1], abs=2e-6)


@pytest.mark.parametrize("alpha", [0.5, 0.001, 1e-300])
def test_bounds_grow_with_the_count(alpha):
    for n in (1, 2, 5, 30, 31, 32, 33, 64, 65, 200):
        for bound in (mixture_lower, mixture_upper):
            values = [bound(k, n, alpha) for k in range(n + 1)]
            assert values == sorted(values)
    n = 10**9
    for start in (0, 1000, n // 2, n - 1000, n - 4):
        values = [mixture_lower(k, n, alpha) for k in range(start, start + 5)]
        assert values == sorted(set(values))


@given(st.integers(1, 3000), st.data(), st.sampled_from([0.5, 0.1, 0.001, 1e-12]))
def test_holding_at_all_times_costs_something_at_each(n, data, alpha):
    k = data.draw(st.integers(0, n))
    # Against Clopper–Pearson itself: rounded outwards, its upper bound can be 1 where the exact one isn't.
    exact_lower = float(betaincinv(k, n - k + 1, alpha)) if k else 0.0
    exact_upper = float(betainccinv(k + 1, n - k, alpha)) if k < n else 1.0
    assert mixture_lower(k, n, alpha) <= exact_lower
    assert mixture_upper(k, n, alpha) >= exact_upper


def test_bad_counts_are_refused():
    for bound in (mixture_lower, mixture_upper):
        with pytest.raises(InvalidValueError, match=r"\b11\b.*\b10\b"):
            bound(11, 10, 0.1)
        with pytest.raises(InvalidValueError, match=r"alpha.*\b0\.0"):
            bound(1, 10, 0.0)


def test_they_are_made_of_the_stated_bounds():
    tally, alpha = hard(620, 330, 50), 0.01
    share = (1 - 1e-6) * alpha * 576 * 17 / ((64 + 576) * (81 + 576))  # 1000 votes are look 8
    expected = {
        "mixture": (mixture_lower(620, 1000, alpha), None),
        "mixture-top-two": (mixture_lower(620, 1000, alpha * 31 / 32), mixture_upper(330, 1000, alpha / 32)),
        "mixture-two-class": (mixture_lower(620, 1000, alpha / 2), mixture_upper(330, 1000, alpha / 2)),
        "looks": (clopper_pearson_lower(620, 1000, share), None),
        "looks-top-two": (
            clopper_pearson_lower(620, 1000, share * 31 / 32),
            clopper_pearson_upper(330, 1000, share / 32),
        ),
        "looks-two-class": (
            clopper_pearson_lower(620, 1000, share / 2),
            clopper_pearson_upper(330, 1000, share / 2),
        ),
    }
    for name, (lower, upper) in expected.items():
        bounds = BOUNDS[name](tally, 0, alpha)
        assert BOUNDS[name].anytime
        assert BOUNDS[name].votes == "hard"
        assert bounds.lower == pytest.approx(lower, rel=1e-11)
        assert bounds.upper == pytest.approx(1 - lower if upper is None else upper, rel=1e-11)
    # A rival is never given more than the chosen class leaves.
    assert BOUNDS["mixture-two-class"](hard(990, 10), 0, alpha).upper == pytest.approx(
        1 - mixture_lower(990, 1000, alpha / 2)
    )


def test_looks_are_the_nearest_whole_numbers():
    looks = [look(k) for k in range(57)]
    assert looks[::8] == [10**d for d in range(2, 10)]
    assert looks[:9] == [100, 133, 178, 237, 316, 422, 562, 750, 1000]
    for k, n in enumerate(looks):  # |n − 100·10^{k/8}| < ½, in whole numbers
        assert (2 * n - 1) ** 8 < 2**8 * 10 ** (16 + k) < (2 * n + 1) ** 8


def test_next_look_and_last_look():
    bound = BOUNDS["looks"]
    looks = [look(k) for k in range(40)]
    for before, after in pairwise(looks):
        for n in (before, before + 1, after - 1):
            assert next_look(n) == after
            assert bound.last_look(n) == before
    assert [next_look(n) for n in (-1, 0, 1, 99)] == [100] * 4
    with pytest.raises(InvalidValueError, match=r"looks.*\b100\b.*\b99\b"):
        bound.last_look(99)
    assert [BOUNDS["mixture"].last_look(n) for n in (1, 99, 101)] == [1, 99, 101]


def test_shares_add_up_to_no_more_than_one():
    total = Fraction(0)
    for k in range(2000):
        exact = Fraction((k + 1) ** 2, (k + 1) ** 2 + 576) - Fraction(k**2, k**2 + 576)
        assert 0 < Fraction(look_share(k)) <= exact
        assert look_share(k) == pytest.approx(float(exact), rel=1e-13)
        total += Fraction(look_share(k))
    assert 0.999 < total < 1


@pytest.mark.parametrize("name", SCHEDULED)
def test_an_n_between_looks_is_refused_by_name(name):
    named = rf"\b{name}\b.*\b101\b.*\b100\b.*\b133\b"
    with pytest.raises(InvalidValueError, match=named):
        BOUNDS[name](unanimous(101, 2, "hard"), 0, 0.1)
    with pytest.raises(InvalidValueError, match=named):
        CertifyPlan(Gaussian(1.0), name, n=101)
    with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*\b100\b.*\b7\b"):
        CertifyPlan(Gaussian(1.0), name, n=7)
    assert CertifyPlan(Gaussian(1.0), name, n=133).n == 133
    assert CertifyPlan(Gaussian(1.0), "mixture", n=101).n == 101


def test_least_votes_at_the_papers_alpha():
    def suffices(n: int, alpha: float) -> bool:
        return (alpha * math.exp(betaln(n + 0.5, 0.5)) / math.pi) ** (1 / n) > 0.5

    for name, alpha in (
        ("mixture", 0.001),
        ("mixture-top-two", 0.001 * 31 / 32),
        ("mixture-two-class", 0.0005),
    ):
        assert least_votes(BOUNDS[name], 0.001) == next(n for n in range(1, 100) if suffices(n, alpha))
    assert least_votes(BOUNDS["looks"], 0.001) == 100
    # 691 of ln(1/α) and some 4 for the share, against n ln 2: more than 750 votes.
    assert least_votes(BOUNDS["looks"], 1e-300) == 1334


def test_the_ceiling_is_that_of_the_last_look():
    bound: Bound = BOUNDS["looks"]
    assert largest_radius(Gaussian(1.0), bound, 120_000, 0.001) == largest_radius(
        Gaussian(1.0), bound, 100_000, 0.001
    )
    with pytest.raises(InvalidValueError, match=r"looks.*\b100\b.*\b99\b"):
        largest_radius(Gaussian(1.0), bound, 99, 0.001)


def test_the_documented_costs():
    for n, successes, fixed, looks, mixture in [
        (1000, 900, 1.114, 1.064, 1.040),
        (1000, 1000, 2.463, 2.304, 2.295),
        (10_000, 9900, 2.212, 2.179, 2.154),
        (100_000, 99_000, 2.290, 2.278, 2.267),
        (100_000, 100_000, 3.811, 3.700, 3.648),
    ]:
        stated = {"clopper-pearson": fixed, "looks": looks, "mixture": mixture}
        for name, radius in stated.items():
            bounds = BOUNDS[name](hard(successes, n - successes), 0, 0.001)
            assert Certificate(Gaussian(1.0)).radius(bounds) == pytest.approx(radius, abs=6e-4)
