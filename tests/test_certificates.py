"""Radii against their formulas, and never above them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from smoothcert.bounds import BOUNDS, ClassBounds
from smoothcert.certificates import GaussianL2, UniformL1, certificate_for, largest_radius
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Gaussian, Uniform
from smoothcert.tally import Phase, Stream, Tally


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1 - 1e-6), st.floats(0.01, 10))
def test_gaussian_radius_is_the_formula_rounded_down(upper: float, lower: float, sigma: float) -> None:
    radius = GaussianL2(Gaussian(sigma)).radius(ClassBounds(lower, upper))
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
    radius = UniformL1(Uniform(sigma)).radius(ClassBounds(lower, upper))
    exact = math.sqrt(3) * sigma * max(0.0, lower - upper)
    assert radius <= exact
    assert radius == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_the_issues_example_abstains_one_sided_and_certifies_two_class() -> None:
    rest = (9000,) * 5
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 100_000, (45_000, 10_000, *rest))
    certificate = GaussianL2(Gaussian(1.0))
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


def test_noise_without_a_theorem_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no certificate is known"):
        certificate_for(object())  # type: ignore[arg-type]
