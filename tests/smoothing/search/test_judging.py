"""How good a σ is: the papers' objective against closed forms and differences, the curve against linear classifiers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import largest_radius
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.smoothing.search.judging import Curve, SigmaVotes, fit, radius_gradient
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.exact import hard_tally
from tests.smoothing.search.problems import labels, problem


class Constant(nn.Module):
    """The same logits for every input, which still take part in the graph."""

    def __init__(self, *probabilities: float) -> None:
        super().__init__()
        self.logits = torch.tensor(probabilities, dtype=torch.float64).log()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits + 0 * x.sum(1, keepdim=True)


class Slope(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([1.5 - x[:, 0] ** 2, x[:, 1], x[:, 0] - x[:, 1]], 1)


def unit(samples: int = 4, inputs: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((samples, inputs, 2), generator=generator, dtype=torch.float64)


SIGMA = torch.tensor([0.2, 0.5, 1.1], dtype=torch.float64)
X = torch.zeros(3, 2, dtype=torch.float64)


def test_constant_means_give_a_constant_slope():
    for probabilities, gap in (
        ((0.7, 0.2, 0.1), ndtri(0.7) - ndtri(0.2)),
        ((0.995, 0.004, 0.001), ndtri(0.98) - ndtri(0.02)),  # both means are clamped
    ):
        radius, gradient = radius_gradient(Constant(*probabilities), X, unit(), SIGMA)
        torch.testing.assert_close(radius, SIGMA / 2 * gap)
        torch.testing.assert_close(gradient, torch.full((3,), gap / 2, dtype=torch.float64))
    radius, gradient = radius_gradient(Constant(0.995, 0.004, 0.001), X, unit(), SIGMA, "uniform")
    torch.testing.assert_close(radius, math.sqrt(3) * SIGMA * 0.991)
    torch.testing.assert_close(gradient, torch.full((3,), math.sqrt(3) * 0.991, dtype=torch.float64))


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_the_gradient_is_that_of_the_reparameterised_mean(noise):
    _, gradient = radius_gradient(Slope(), X, unit(), SIGMA, noise)
    above, _ = radius_gradient(Slope(), X, unit(), SIGMA + 1e-6, noise)
    below, _ = radius_gradient(Slope(), X, unit(), SIGMA - 1e-6, noise)
    torch.testing.assert_close(gradient, (above - below) / 2e-6, rtol=1e-5, atol=1e-7)


def test_bad_arguments_are_named():
    with pytest.raises(InvalidValueError, match=r"noise.*\(3, 2\).*\(4, 2, 2\)"):
        radius_gradient(Slope(), X, unit(inputs=2), SIGMA)
    with pytest.raises(InvalidValueError, match=r"noise.*'laplace'"):
        radius_gradient(Slope(), X, unit(), SIGMA, "laplace")


SIGMAS = 0.5 * 2.0 ** (np.arange(-4, 5) / 2)


def exact_votes(edge: float, n: float = 1000) -> SigmaVotes:
    """A half-space's votes without luck: p_A = Φ(edge/σ)."""
    p = ndtr(edge / SIGMAS)
    return SigmaVotes(SIGMAS, np.full(len(SIGMAS), n), n * p, n * (1 - p))


@settings(max_examples=30)
@given(edge=st.floats(0.15, 1.5))
def test_a_linear_classifiers_radius_is_its_margin(edge):
    curve = Curve.through(problem(HalfSpace(edge), **labels()), exact_votes(edge), 0.5)
    for sigma in SIGMAS[(edge / SIGMAS > 0.8) & (edge / SIGMAS < 2.5)]:
        p, rival = curve.probabilities(float(sigma))
        assert p == pytest.approx(ndtr(edge / sigma), abs=0.01)
        assert rival == pytest.approx(1 - p, abs=0.01)
        assert curve.radius(float(sigma)) == pytest.approx(edge, rel=0.1)


def test_the_radius_is_what_certify_would_return():
    # Unanimous votes of n: the ceiling σΦ⁻¹(…) of the bound, in proportion to σ.
    asked = problem(HalfSpace(50.0), n=1000, **labels())
    votes = SigmaVotes(SIGMAS, np.full(9, 1e4), np.full(9, 1e4), np.zeros(9))
    curve = Curve.through(asked, votes, 0.5)
    assert curve.radius(0.5) == pytest.approx(largest_radius(Gaussian(0.5), BOUNDS["top-two"], 1000, 0.001))
    assert curve.best(SIGMAS) == SIGMAS[-1]


def test_the_best_sigma_of_a_half_space_is_where_the_bound_wastes_least():
    edge, n = 0.6, 10_000
    asked = problem(HalfSpace(edge), n=n, **labels())
    fine = np.geomspace(0.125, 2, 41)

    def certified(sigma: float) -> float:
        count = int(n * ndtr(edge / sigma))
        bounds = asked.bound(hard_tally([count, n - count]), 0, asked.alpha)
        return Gaussian(sigma).certificate.radius(bounds)

    best = max(certified(float(s)) for s in fine)
    curve = Curve.through(asked, exact_votes(edge), 0.5)
    sigma = curve.best(fine)
    assert certified(sigma) > 0.99 * best
    assert curve.radius(sigma) == pytest.approx(best, rel=0.03)


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 20), min_size=5, max_size=5),
    weights=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
)
def test_any_votes_have_a_finite_curve(counts, weights):
    t = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    beta = fit(t, np.array(counts, float), np.full(5, 20.0), np.array(weights))
    assert np.isfinite(beta).all()


def test_soft_bounds_take_the_same_curve():
    def half(batch: np.ndarray) -> np.ndarray:
        first = ndtr((0.5 - batch[:, 0]) / 0.1)
        return np.stack([first, 1 - first], 1)

    for bound in ("hoeffding", "bernstein"):
        asked = problem(half, bound=bound, outputs="probabilities")
        assert 0.3 < Curve.through(asked, exact_votes(0.5), 0.5).radius(0.5) < 0.5
