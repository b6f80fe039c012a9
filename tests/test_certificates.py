"""Radii against their formulas, and never above them."""

from __future__ import annotations

import math
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from smoothcert.bounds import BOUNDS, ClassBounds
from smoothcert.certificates import Certificate, certificate_for, largest_radius
from smoothcert.noise import DiagonalGaussian, DiagonalUniform, Gaussian, Isotropic, Uniform
from smoothcert.regions import CrossPolytope, Ellipsoid
from smoothcert.tally import Phase, Stream, Tally


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1 - 1e-6), st.floats(0.01, 10))
def test_gaussian_radius_is_the_formula_rounded_down(upper: float, lower: float, sigma: float) -> None:
    radius = Certificate(Gaussian(sigma)).radius(ClassBounds(lower, upper))
    if lower <= upper:
        assert radius == 0.0
        return
    with mpmath.workdps(40):

        def quantile(p: float) -> mpmath.mpf:
            return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)

        exact = mpmath.mpf(sigma) / 2 * (quantile(lower) - quantile(upper))
        assert radius <= exact
        assert radius == pytest.approx(float(exact), rel=1e-9, abs=1e-12 * sigma)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 10))
def test_uniform_radius_is_the_formula_rounded_down(upper: float, lower: float, sigma: float) -> None:
    radius = Certificate(Uniform(sigma)).radius(ClassBounds(lower, upper))
    exact = math.sqrt(3) * sigma * max(0.0, lower - upper)
    assert radius <= exact
    assert radius == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_the_issues_example_abstains_one_sided_and_certifies_two_class() -> None:
    rest = (9000,) * 5
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 100_000, (45_000, 10_000, *rest))
    certificate = Certificate(Gaussian(1.0))
    assert certificate.radius(BOUNDS["clopper-pearson"](tally, 0, 0.001)) == 0.0
    assert certificate.radius(BOUNDS["two-class"](tally, 0, 0.001)) == pytest.approx(0.5625, abs=1e-3)


def test_the_ceiling_of_the_papers_protocol() -> None:
    ceiling = largest_radius(Gaussian(1.0), BOUNDS["clopper-pearson"], 100_000, 0.001)
    assert ceiling == pytest.approx(norm.ppf(0.001 ** (1 / 100_000)), rel=1e-9)
    assert ceiling == pytest.approx(3.81, abs=0.005)


def test_regions_have_the_noise_norm_and_radius() -> None:
    bounds = ClassBounds(0.9, 0.1)
    ball = certificate_for(Gaussian(0.5)).region(np.zeros(3), bounds)
    cross = certificate_for(Uniform(0.5)).region(np.zeros(3), bounds)
    assert ball is not None
    assert cross is not None
    assert (ball.norm, cross.norm) == ("l2", "l1")
    assert ball.radius == pytest.approx(0.5 * norm.ppf(0.9))
    assert certificate_for(Gaussian(0.5)).region(np.zeros(3), ClassBounds(0.4, 0.6)) is None


def test_noise_without_a_theorem_cannot_be_made() -> None:
    class Bare(Isotropic):
        name: ClassVar[str] = "bare"

    with pytest.raises(TypeError, match=r"\bBare\b.*\bgap\b"):
        Bare(0.5)  # type: ignore[abstract]


probabilities = st.floats(1e-6, 1 - 1e-6)


@given(probabilities, probabilities, st.lists(st.floats(0.01, 10), min_size=1, max_size=5))
def test_the_ellipsoid_is_the_formula_rounded_down(upper: float, lower: float, scales: list[float]) -> None:
    sigmas = np.array(scales)
    bounds = ClassBounds(lower, upper)
    certificate = Certificate(DiagonalGaussian(sigmas))
    region = certificate.region(np.zeros(sigmas.size), bounds)
    if region is None:
        assert certificate.radius(bounds) == 0.0
        assert lower - upper < 1e-9
        return
    assert isinstance(region, Ellipsoid)
    with mpmath.workdps(40):

        def quantile(p: float) -> mpmath.mpf:
            return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)

        gap = (quantile(lower) - quantile(upper)) / 2
        assert 0 <= DiagonalGaussian.gap(lower, upper) <= gap
        assert DiagonalGaussian.gap(lower, upper) == pytest.approx(float(gap), rel=1e-9, abs=1e-12)
        for axis, sigma in zip(region.semi_axes.tolist(), scales):
            assert axis <= mpmath.mpf(sigma) * gap
            assert axis == pytest.approx(float(sigma * gap), rel=1e-9, abs=1e-12 * sigma)
    assert certificate.radius(bounds) == region.semi_axes.min() == region.inscribed_radius


@given(st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(0.01, 10), min_size=1, max_size=5))
def test_the_cross_polytope_is_the_formula_rounded_down(
    upper: float, lower: float, scales: list[float]
) -> None:
    bounds = ClassBounds(lower, upper)
    certificate = Certificate(DiagonalUniform(np.array(scales)))
    region = certificate.region(np.zeros(len(scales)), bounds)
    if region is None:
        assert certificate.radius(bounds) == 0.0
        assert lower - upper < 1e-12
        return
    assert isinstance(region, CrossPolytope)
    with mpmath.workdps(40):
        gap = mpmath.mpf(lower) - mpmath.mpf(upper)
        assert 0 <= DiagonalUniform.gap(lower, upper) <= gap
        for axis, sigma in zip(region.semi_axes.tolist(), scales):
            assert axis <= mpmath.sqrt(3) * mpmath.mpf(sigma) * gap
            assert axis == pytest.approx(float(mpmath.sqrt(3) * sigma * gap), rel=1e-12, abs=1e-15)
    assert certificate.radius(bounds) == region.semi_axes.min()


@pytest.mark.parametrize(
    ("diagonal", "isotropic"), [(DiagonalGaussian, Gaussian), (DiagonalUniform, Uniform)]
)
@given(lower=probabilities, upper=probabilities, sigma=st.floats(0.01, 10))
def test_a_constant_vector_gives_the_very_radius(
    diagonal: type[DiagonalGaussian], isotropic: type[Gaussian], lower: float, upper: float, sigma: float
) -> None:
    bounds = ClassBounds(lower, upper)
    ball, stretched = certificate_for(isotropic(sigma)), certificate_for(diagonal(np.full((2, 2), sigma)))
    assert stretched.radius(bounds) == ball.radius(bounds)
    assert (stretched.norm, stretched.ball, ball.ball) == (ball.norm, False, True)
    region, expected = (one.region(np.zeros((2, 2)), bounds) for one in (stretched, ball))
    assert (region is None) == (expected is None)
    if region is not None and expected is not None:
        assert (region.semi_axes == expected.radius).all()  # type: ignore[union-attr]
        assert region.volume_radius == expected.volume_radius == expected.radius  # type: ignore[union-attr]
        assert region.certified_area == expected.certified_area


def test_sizes_of_the_paper_for_the_region_of_a_certificate() -> None:
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
