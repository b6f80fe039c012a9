"""The curve through votes: closed forms of linear classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from smoothcert.bounds import BOUNDS
from smoothcert.certificates import certificate_for
from smoothcert.noise import Gaussian
from smoothcert.sigma_search.curve import Curve, Votes, fit
from tests.guarantees.closed_forms import HalfSpace
from tests.sigma_search.problems import labels, problem

SIGMAS = 0.5 * 2.0 ** (np.arange(-4, 5) / 2)


def exact_votes(edge: float, n: float = 1000) -> Votes:
    """A half-space's votes without luck: p_A = Φ(edge/σ)."""
    p = ndtr(edge / SIGMAS)
    return Votes(SIGMAS, np.full(len(SIGMAS), n), n * p, n * (1 - p))


@settings(max_examples=30)
@given(edge=st.floats(0.15, 1.5))
def test_a_linear_classifiers_radius_is_its_margin(edge: float) -> None:
    curve = Curve.through(problem(HalfSpace(edge), **labels()), exact_votes(edge), 0.5)
    for sigma in SIGMAS[(edge / SIGMAS > 0.8) & (edge / SIGMAS < 2.5)]:
        p, rival = curve.probabilities(float(sigma))
        assert p == pytest.approx(ndtr(edge / sigma), abs=0.01)
        assert rival == pytest.approx(1 - p, abs=0.01)
        assert curve.radius(float(sigma)) == pytest.approx(edge, rel=0.1)


def test_the_radius_is_what_certify_would_return() -> None:
    # Unanimous votes of n: the ceiling σΦ⁻¹(…) of the bound, in proportion to σ.
    asked = problem(HalfSpace(50.0), n=1000, **labels())
    votes = Votes(SIGMAS, np.full(9, 1e4), np.full(9, 1e4), np.zeros(9))
    curve = Curve.through(asked, votes, 0.5)
    from smoothcert.certificates import largest_radius

    assert curve.radius(0.5) == pytest.approx(largest_radius(Gaussian(0.5), BOUNDS["top-two"], 1000, 0.001))
    assert curve.best(SIGMAS)[0] == SIGMAS[-1]


def test_the_best_sigma_of_a_half_space_is_where_the_bound_wastes_least() -> None:
    edge, n = 0.6, 10_000
    asked = problem(HalfSpace(edge), n=n, **labels())
    fine = np.geomspace(0.125, 2, 41)

    def certified(sigma: float) -> float:
        from tests.guarantees.coverage import hard_tally

        count = int(n * ndtr(edge / sigma))
        bounds = asked.bound(hard_tally([count, n - count]), 0, asked.alpha)
        return certificate_for(Gaussian(sigma)).radius(bounds)

    best = max(certified(float(s)) for s in fine)
    sigma, radius = Curve.through(asked, exact_votes(edge), 0.5).best(fine)
    assert certified(sigma) > 0.99 * best
    assert radius == pytest.approx(best, rel=0.03)


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 20), min_size=5, max_size=5),
    weights=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
)
def test_any_votes_have_a_finite_curve(counts: list[int], weights: list[float]) -> None:
    t = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    beta = fit(t, np.array(counts, float), np.full(5, 20.0), np.array(weights))
    assert np.isfinite(beta).all()


def test_soft_bounds_take_the_same_curve() -> None:
    def half(batch: np.ndarray) -> np.ndarray:
        first = ndtr((0.5 - batch[:, 0]) / 0.1)
        return np.stack([first, 1 - first], 1)

    for bound in ("hoeffding", "bernstein"):
        asked = problem(half, bound=bound, outputs="probabilities")
        assert 0.3 < Curve.through(asked, exact_votes(0.5), 0.5).radius(0.5) < 0.5
