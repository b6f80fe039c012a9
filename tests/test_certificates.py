"""Radii against their formulas, and never above them."""

import math
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from smoothcert.bounds.base import BOUNDS, ClassBounds
from smoothcert.perturb.base import Certificate, Isotropic, largest_radius
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.uniform import DiagonalUniform, Uniform
from smoothcert.regions.bodies import CrossPolytope, Ellipsoid
from smoothcert.tally import Phase, Stream, Tally


def test_the_issues_example_abstains_one_sided_and_certifies_two_class():
    rest = (9000,) * 5
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 100_000, (45_000, 10_000, *rest))
    certificate = Certificate(Gaussian(1.0))
    assert certificate.radius(BOUNDS["clopper-pearson"](tally, 0, 0.001)) == 0.0
    assert certificate.radius(BOUNDS["two-class"](tally, 0, 0.001)) == pytest.approx(0.5625, abs=1e-3)


def test_the_ceiling_of_the_papers_protocol():
    ceiling = largest_radius(Gaussian(1.0), BOUNDS["clopper-pearson"], 100_000, 0.001)
    assert ceiling == pytest.approx(norm.ppf(0.001 ** (1 / 100_000)), rel=1e-9)
    assert ceiling == pytest.approx(3.81, abs=0.005)


def test_regions_have_the_noise_norm_and_radius():
    bounds = ClassBounds(0.9, 0.1)
    ball = Gaussian(0.5).certificate.region(np.zeros(3), bounds)
    cross = Uniform(0.5).certificate.region(np.zeros(3), bounds)
    assert ball is not None
    assert cross is not None
    assert (ball.norm, cross.norm) == ("l2", "l1")
    assert ball.radius == pytest.approx(0.5 * norm.ppf(0.9))
    assert Gaussian(0.5).certificate.region(np.zeros(3), ClassBounds(0.4, 0.6)) is None


def test_noise_without_a_theorem_cannot_be_made():
    class Bare(Isotropic):
        name: ClassVar[str] = "bare"

    with pytest.raises(TypeError, match=r"\bBare\b.*\bgap\b"):
        Bare(0.5)


def quantile(p: float) -> mpmath.mpf:
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


def normal_gap(lower: float, upper: float) -> mpmath.mpf:
    return (quantile(lower) - quantile(upper)) / 2


def uniform_gap(lower: float, upper: float) -> mpmath.mpf:
    return mpmath.mpf(lower) - mpmath.mpf(upper)


probabilities = st.floats(1e-6, 1 - 1e-6)


@pytest.mark.parametrize(
    ("ball", "stretched", "body", "exact_gap", "square"),
    [
        (Gaussian, DiagonalGaussian, Ellipsoid, normal_gap, 1),
        (Uniform, DiagonalUniform, CrossPolytope, uniform_gap, 3),
    ],
)
@given(lower=probabilities, upper=probabilities, scales=st.lists(st.floats(0.01, 10), min_size=1, max_size=5))
def test_radii_and_semi_axes_are_the_formula_rounded_down(
    ball, stretched, body, exact_gap, square, lower, upper, scales
):
    bounds = ClassBounds(lower, upper)
    certificate = Certificate(stretched(np.array(scales)))
    region = certificate.region(np.zeros(len(scales)), bounds)
    radii = [Certificate(ball(sigma)).radius(bounds) for sigma in scales]
    if region is None:
        assert certificate.radius(bounds) == min(radii) == 0.0
        assert lower - upper < 1e-9
        assert lower > upper or max(radii) == 0.0
        return
    assert isinstance(region, body)
    with mpmath.workdps(40):
        gap = exact_gap(lower, upper)
        assert stretched.gap(lower, upper) == pytest.approx(float(gap), rel=1e-9, abs=1e-12)
        exact = mpmath.sqrt(square) * gap
        assert 0 <= stretched.gap(lower, upper) <= gap
        for radius, axis, sigma in zip(radii, region.axes.tolist(), scales):
            assert max(radius, axis) <= sigma * exact
            assert axis == pytest.approx(float(sigma * exact), rel=1e-9, abs=1e-12 * sigma)
            assert radius == pytest.approx(float(sigma * exact), rel=1e-9, abs=1e-12 * sigma)
    assert certificate.radius(bounds) == region.axes.min() == region.inscribed_radius


@pytest.mark.parametrize(
    ("diagonal", "isotropic"), [(DiagonalGaussian, Gaussian), (DiagonalUniform, Uniform)]
)
@given(lower=probabilities, upper=probabilities, sigma=st.floats(0.01, 10))
def test_a_constant_vector_gives_the_very_radius(diagonal, isotropic, lower, upper, sigma):
    bounds = ClassBounds(lower, upper)
    ball, stretched = isotropic(sigma).certificate, diagonal(np.full((2, 2), sigma)).certificate
    assert stretched.radius(bounds) == ball.radius(bounds)
    assert (stretched.norm, stretched.ball, ball.ball) == (ball.norm, False, True)
    region, expected = (one.region(np.zeros((2, 2)), bounds) for one in (stretched, ball))
    assert (region is None) == (expected is None)
    if region is not None and expected is not None:
        assert (region.semi_axes == expected.radius).all()
        assert region.volume_radius == expected.volume_radius == expected.radius
        assert region.certified_area == expected.certified_area


def test_sizes_of_the_paper_for_the_region_of_a_certificate():
    sigmas = np.random.default_rng(0).uniform(0.1, 1, size=(3, 4))
    bounds = ClassBounds(0.9, 0.1)
    certificate = Certificate(DiagonalGaussian(sigmas))
    region = certificate.region(np.zeros((3, 4)), bounds)
    assert region is not None
    gap = norm.ppf(0.9)
    assert region.certified_area == pytest.approx(np.log(sigmas).sum() + 12 * math.log(gap), rel=1e-12)
    assert region.inscribed_radius == pytest.approx(sigmas.min() * gap, rel=1e-12)
    assert region.volume_radius == pytest.approx(DiagonalGaussian(sigmas).sigma * gap, rel=1e-12)
    # Two classes: p_B far below 1 − p_A makes the region larger, as it does the ball.
    assert DiagonalGaussian.gap(0.45, 0.1) == pytest.approx((norm.ppf(0.45) - norm.ppf(0.1)) / 2)
