"""Bodies of different shapes: nothing is claimed that a witness contradicts, and next to nothing is given away."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import CrossPolytope, Ellipsoid, GaugeBody, L1Ball, L2Ball
from smoothcert.regions.geometry import inside_scale, outside_scale
from tests.regions.witnesses import cross_inside, cross_outside, most_inside, most_outside

Kind = type[Ellipsoid] | type[CrossPolytope]


def seen(fixed: GaugeBody, candidate: GaugeBody) -> tuple[np.ndarray, np.ndarray]:
    return (candidate.center - fixed.center) / fixed.axes, candidate.axes / fixed.axes


def pairs(kind: Kind, count: int, seed: int, largest: int = 20) -> Iterator[tuple[GaugeBody, GaugeBody]]:
    """Near and far, alike and not, equal in some coordinates, one around the other's center; some are balls."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        size = int(rng.integers(1, largest + 1))
        spread = rng.choice([0.01, 1.0, 3.0])
        a, b = np.exp(rng.normal(size=(2, size)) * spread)
        away = rng.normal(size=size) * a * np.exp(rng.normal() * 2) / np.sqrt(size)
        away[rng.random(size) < rng.choice([0.0, 0.5])] = 0.0
        center = rng.normal(size=size)
        ball: type[L2Ball] | type[L1Ball] = L2Ball if kind is Ellipsoid else L1Ball
        fixed: GaugeBody = kind(center, a)
        other: GaugeBody = kind(center + away, b)
        if number % 10 == 0:
            fixed = ball(center, float(a[0]))
        if number % 10 == 1:
            other = ball(center + away, float(b[0]))
        yield fixed, other


@pytest.mark.parametrize(
    ("library", "witness"), [(outside_scale, most_outside), (inside_scale, most_inside)], ids=["out", "in"]
)
def test_ellipsoids_against_witnesses(library, witness):
    proper = 0
    for fixed, other in pairs(Ellipsoid, 1000, seed=1):
        scale, most = library(*seen(fixed, other), 2), witness(fixed, other)
        assert scale <= most
        assert scale >= most * (1 - 1e-8) - 1e-12
        proper += scale > 0
    assert 200 < proper < 967


@pytest.mark.parametrize(
    ("library", "exact"), [(outside_scale, cross_outside), (inside_scale, cross_inside)], ids=["out", "in"]
)
def test_cross_polytopes_against_exact_fractions(library, exact):
    proper = 0
    for fixed, other in pairs(CrossPolytope, 800, seed=2):
        scale, most = library(*seen(fixed, other), 1), exact(fixed, other)
        assert Fraction(scale) <= most
        assert scale >= float(most) * (1 - 1e-8) - 1e-12
        proper += scale > 0
    assert 160 < proper < 760


@pytest.mark.parametrize("seed", range(3))
def test_pictures_of_784_pixels(seed):
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(size=(2, 784)))
    far, near = rng.normal(size=(2, 784)) * a * np.array([[0.2], [0.005]])
    for kind, out, within, order in (
        (Ellipsoid, most_outside, most_inside, 2),
        (CrossPolytope, cross_outside, cross_inside, 1),
    ):
        apart = 1.0 if kind is Ellipsoid else 1 / 28
        fixed = kind(np.zeros(784), a)
        for away, witness, library in ((far, out, outside_scale), (near * apart, within, inside_scale)):
            other = kind(away, b)
            scale, most = library(*seen(fixed, other), order), float(witness(fixed, other))
            assert 0 < scale <= most
            assert scale == pytest.approx(most, rel=1e-8)


@pytest.mark.parametrize("kind", [Ellipsoid, CrossPolytope])
def test_cut_bodies_have_no_point_too_many(kind):
    """Regions, not scales: points drawn in what is left are judged by plain gauges."""
    rng = np.random.default_rng(3)
    kept = 0
    for fixed, other in pairs(kind, 500, seed=4, largest=6):
        order = fixed.order
        for left, holds in ((fixed.outside(other), False), (fixed.inside(other), True)):
            if left is None:
                continue
            kept += 1
            assert (left.axes <= other.axes).all()
            assert type(left) is type(other)
            directions = rng.normal(size=(40, left.axes.size))
            directions /= np.linalg.norm(directions, order, axis=1, keepdims=True)
            toward = fixed.center - left.center
            if np.any(toward):
                directions[0] = toward / left.axes / np.linalg.norm(toward / left.axes, order)
            points = left.center + directions * left.axes * 0.999999
            gauges = np.linalg.norm((points - fixed.center) / fixed.axes, order, axis=1)
            assert ((gauges < 1) == holds).all()
    assert kept > 200


@pytest.mark.parametrize(("stretched", "ball"), [(Ellipsoid, L2Ball), (CrossPolytope, L1Ball)])
def test_equal_axes_give_the_balls_answers(stretched, ball):
    rng = np.random.default_rng(5)
    for _ in range(300):
        size = int(rng.integers(1, 20))
        first, second = rng.normal(size=(2, size))
        r, s = rng.uniform(0.1, 3, size=2)
        balls = ball(first, r), ball(second, s)
        bodies = stretched(first, np.full(size, r)), stretched(second, np.full(size, s))
        for one, other in ((balls[0], bodies[1]), (bodies[0], balls[1]), bodies):
            for cut in ("outside", "inside"):
                expected = getattr(balls[0], cut)(balls[1])
                found = getattr(one, cut)(other)
                assert (0.0 if found is None else found.inscribed_radius) == pytest.approx(
                    0.0 if expected is None else expected.radius, rel=1e-8, abs=1e-9
                )
            assert one.disjoint(other) == balls[0].disjoint(balls[1])


@pytest.mark.parametrize("kind", [Ellipsoid, CrossPolytope])
def test_disjoint_is_said_only_of_bodies_without_a_common_point(kind):
    verdicts = [0, 0]
    exact = most_outside if kind is Ellipsoid else cross_outside
    for fixed, other in pairs(kind, 1000, seed=6, largest=8):
        disjoint = fixed.disjoint(other)
        verdicts[disjoint] += 1
        if disjoint:
            assert exact(fixed, other) >= 1
            along = fixed.center + np.linspace(0, 1, 101)[:, np.newaxis] * (other.center - fixed.center)
            assert not any(fixed.contains(point) and other.contains(point) for point in along)
        else:
            assert exact(fixed, other) < 1 + 1e-6
    assert min(verdicts) > 100


def test_a_second_look_agrees_with_the_first():
    """What was cut to fit fits, up to rounding."""
    cut = 0
    for kind in (Ellipsoid, CrossPolytope):
        for fixed, other in pairs(kind, 500, seed=7):
            left = fixed.outside(other)
            if left is not None and left is not other:
                cut += 1
                again = fixed.outside(left)
                assert again is not None
                assert (again.axes >= left.axes * (1 - 1e-9)).all()
    assert cut > 100


def test_extreme_numbers_claim_nothing_or_the_truth():
    tiny, huge = np.full(2, 1e-99), np.full(2, 1e99)
    assert Ellipsoid(np.zeros(2), tiny).outside(Ellipsoid(np.array([1e99, 0.0]), huge)) is not None
    assert Ellipsoid(np.zeros(2), huge).inside(Ellipsoid(np.array([1e90, 0.0]), tiny)) is not None
    assert Ellipsoid(np.zeros(2), tiny).inside(Ellipsoid(np.zeros(2), huge)).reach == pytest.approx(1e-99)
    assert Ellipsoid(np.zeros(2), tiny).outside(Ellipsoid(np.array([0.0, 1e-100]), huge)) is None
    mixed = Ellipsoid(np.zeros(2), np.array([1e-90, 1e90]))
    other = Ellipsoid(np.array([1.0, 1.0]), np.array([1e90, 1e-90]))
    left = mixed.outside(other)
    assert left is None or left.semi_axes[0] <= 1.0
    for axis in (1e-150, 1e150):
        assert Ellipsoid(np.zeros(2), np.full(2, axis)).outside(Ellipsoid(np.ones(2), np.ones(2))) is None


def test_norms_do_not_mix():
    with pytest.raises(InvalidValueError, match=r"l1.*l2"):
        Ellipsoid(np.zeros(2), np.ones(2)).outside(L1Ball(np.ones(2), 1.0))
