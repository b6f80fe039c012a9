"""Sizes of regions against 40-digit arithmetic, one vocabulary for all shapes, and never too large."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import CrossPolytope, Ellipsoid, GaugeBody, L1Ball, L2Ball

STRETCHED = [Ellipsoid, CrossPolytope]
IMAGENET = 3 * 224 * 224


def bodies(rng: np.random.Generator, size: int) -> list[GaugeBody]:
    center, axes = rng.normal(size=size), np.exp(rng.normal(size=size) * 3)
    radius = float(axes[0])
    return [
        Ellipsoid(center, axes),
        CrossPolytope(center, axes),
        L2Ball(center, radius),
        L1Ball(center, radius),
    ]


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 20))
def test_area_and_volume_radius_are_rounded_down(seed, size):
    for body in bodies(np.random.default_rng(seed), size):
        with mpmath.workdps(40):
            area = mpmath.fsum(mpmath.log(mpmath.mpf(float(a))) for a in body.axes)
            mean = mpmath.exp(area / size)
            assert body.certified_area <= area
            assert body.certified_area == pytest.approx(float(area), rel=1e-13, abs=1e-12)
            assert body.volume_radius <= mean * (1 + mpmath.mpf(10) ** -35)
            assert body.volume_radius == pytest.approx(float(mean), rel=1e-12)
        assert body.inscribed_radius == body.axes.min()
        assert body.reach == body.axes.max()
        assert body.inscribed_radius <= body.volume_radius <= body.reach


def test_log_volumes_of_known_bodies():
    triple = np.array([2.0, 0.5, 3.0])
    for body, volume in (
        (Ellipsoid(np.zeros(2), np.array([2.0, 3.0])), 6 * math.pi),
        (Ellipsoid(np.zeros(3), triple), 4 / 3 * math.pi * 3),
        (CrossPolytope(np.zeros(3), triple), 4 / 3 * 3),
        (L2Ball(np.zeros(2), 2.0), 4 * math.pi),
        (L2Ball(np.zeros(3), 1.0), 4 / 3 * math.pi),
        (L1Ball(np.zeros(2), 1.0), 2),
        (L1Ball(np.zeros(3), 1.0), 4 / 3),
    ):
        assert body.log_volume() == pytest.approx(math.log(volume))
    # Volumes by counting: a share of a box of known volume.
    points = np.random.default_rng(0).uniform(-1, 1, size=(200_000, 3)) * triple
    for kind in STRETCHED:
        body = kind(np.zeros(3), triple)
        share = np.mean(np.linalg.norm(points / triple, body.order, axis=1) < 1)
        assert math.exp(body.log_volume()) == pytest.approx(share * 8 * 3, rel=0.02)


@pytest.mark.parametrize("kind", STRETCHED)
@pytest.mark.parametrize("scale", [1e-3, 1e-30, 1e30])
def test_nothing_overflows_at_the_size_of_imagenet(kind, scale):
    axes = np.random.default_rng(1).uniform(0.5, 2, size=(3, 224, 224)) * scale
    body = kind(np.zeros(axes.shape), axes)
    area = float(np.sum(np.log(axes)))
    assert body.certified_area == pytest.approx(area, rel=1e-10)
    assert body.volume_radius == pytest.approx(math.exp(area / IMAGENET), rel=1e-10)
    half = IMAGENET / 2
    if kind is Ellipsoid:  # the constant as the paper writes it, 2π^{D/2} / (DΓ(D/2))
        unit = math.log(2) + half * math.log(math.pi) - math.log(IMAGENET) - math.lgamma(half)
    else:
        unit = IMAGENET * math.log(2) - math.lgamma(IMAGENET + 1)
    assert body.log_volume() == pytest.approx(area + unit, rel=1e-10)
    assert math.isfinite(body.log_volume())
    direction = np.ones(axes.shape)
    assert 0 < body.half_width(direction) < math.inf
    assert 0 < body.scale_to_edge(direction * 1e-200) < math.inf
    assert body.covers(np.zeros(axes.shape))


def fractions(values: np.ndarray) -> list[Fraction]:
    return [Fraction(value) for value in values.ravel().tolist()]


def exact_gauge_power(body: GaugeBody, delta: list[Fraction]) -> Fraction:
    """‖δ ⊘ axes‖^order in exact fractions."""
    ratios = [abs(d) / a for d, a in zip(delta, fractions(body.axes), strict=True)]
    return sum((ratio**body.order for ratio in ratios), Fraction(0))


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 12))
def test_covers_and_edges_are_exact_to_the_last_places(seed, size):
    rng = np.random.default_rng(seed)
    for body in bodies(rng, size):
        delta = rng.normal(size=size) * body.axes * np.exp(rng.normal())
        factor = body.scale_to_edge(delta)
        gauge = exact_gauge_power(body, fractions(delta))
        assert Fraction(factor) ** body.order * gauge <= 1
        assert factor * float(gauge) ** (1 / body.order) == pytest.approx(1, rel=1e-12)
        width = body.half_width(delta)
        length = float(np.linalg.norm(delta))
        assert width == pytest.approx(factor * length, rel=1e-12)
        # width² ≤ ‖δ‖₂² / gauge², both sides to the power of the order.
        square = sum(part**2 for part in fractions(delta))
        assert Fraction(width) ** (2 * body.order) * gauge**2 <= square**body.order
        assert body.half_width(delta * 3e-150) == pytest.approx(width, rel=1e-12)
        for shift in (delta * (factor * (1 - 1e-12)), delta * (factor * (1 + 1e-12)), delta):
            if body.covers(shift):
                assert exact_gauge_power(body, fractions(shift)) < 1
        assert body.covers(delta * (factor * (1 - 1e-10)))
        assert not body.covers(delta * (factor * (1 + 1e-10)))


def test_widths_along_axes_and_diagonals():
    body = Ellipsoid(np.zeros(2), np.array([2.0, 0.5]))
    assert body.half_width([1.0, 0.0]) == pytest.approx(2.0)
    assert body.half_width([0.0, -7.0]) == pytest.approx(0.5)
    assert L1Ball(np.zeros(2), 1.0).half_width([1.0, 1.0]) == pytest.approx(math.sqrt(0.5))
    assert L2Ball(np.zeros(2), 1.0).half_width([1.0, 1.0]) == pytest.approx(1.0)
    assert body.scale_to_edge(np.zeros(2)) == math.inf
    assert body.covers(np.zeros(2))
    with pytest.raises(InvalidValueError):
        body.half_width(np.zeros(2))
    with pytest.raises(InvalidValueError):
        body.covers([math.nan, 0.0])
    with pytest.raises(InvalidValueError, match=r"\(3,\).*\(2,\)"):
        body.covers(np.zeros(3))


@pytest.mark.parametrize("kind", STRETCHED)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 20))
def test_every_float_of_a_core_is_claimed(kind, seed, size):
    rng = np.random.default_rng(seed)
    body = kind(rng.normal(size=size) * 100, np.exp(rng.normal(size=size) * 5))
    core = body.core()
    assert (core.axes < body.axes).all()
    for _ in range(10):
        direction = rng.normal(size=size)
        point = core.center + direction * (core.axes / np.linalg.norm(direction, body.order))
        point = np.nextafter(point, rng.choice([-np.inf, np.inf], size=size))
        offset = [p - c for p, c in zip(fractions(point), fractions(core.center))]
        if exact_gauge_power(core, offset) < 1:
            assert body.contains(point)
