"""Ball geometry in two norms, with random points as witnesses."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import L1Ball, L2Ball

Kind = type[L1Ball] | type[L2Ball]
BALLS = pytest.mark.parametrize("kind", [L1Ball, L2Ball])


@BALLS
def test_contains_and_distance_along_an_axis(kind):
    ball = kind(np.zeros((2, 2)), 1.0)
    inside, outside = np.zeros((2, 2)), np.zeros((2, 2))
    inside[0, 1], outside[0, 1] = 0.9, 1.5
    assert ball.contains(inside)
    assert not ball.contains(outside)
    assert ball.distance(inside) == 0.0
    assert ball.distance(outside) == pytest.approx(0.5)


def test_the_two_norms_differ_off_axis():
    point = np.array([0.6, 0.6])
    assert L2Ball(np.zeros(2), 1.0).contains(point)
    assert not L1Ball(np.zeros(2), 1.0).contains(point)


@BALLS
def test_the_boundary_is_never_claimed(kind):
    ball = kind(np.zeros(1000), 0.3)
    edge = np.zeros(1000)
    for inside, first in ((False, 0.3), (False, math.nextafter(0.3, 0)), (True, 0.3 * (1 - 1e-12))):
        edge[0] = first  # the last float below 0.3 is inside, but too close for rounded arithmetic to say so
        assert ball.contains(edge) == inside


@BALLS
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(0.1, 5), size=st.integers(1, 40))
def test_largest_inside_lies_inside_and_largest_outside_is_apart(kind, seed, radius, size):
    rng = np.random.default_rng(seed)
    ball = kind(rng.normal(size=size), radius)
    center = rng.normal(size=size)
    distance = np.linalg.norm(center - ball.center, ball.order)
    inside, outside = ball.largest_inside(center), ball.largest_outside(center)
    assert (inside is not None) == (distance < radius)
    assert (outside is not None) == (distance > radius)
    found = inside or outside
    assert found is not None
    assert found.radius == pytest.approx(abs(radius - distance), rel=1e-6, abs=1e-12)
    assert found.radius <= abs(radius - distance) * (1 + 1e-12) + 1e-15
    directions = rng.normal(size=(20, size))
    directions /= np.linalg.norm(directions, ball.order, axis=1, keepdims=True)
    for point in center + directions * found.radius * rng.uniform(0, 0.999, size=(20, 1)):
        assert (np.linalg.norm(point - ball.center, ball.order) < radius) == (inside is not None)


@BALLS
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(0.1, 5), size=st.integers(1, 40))
def test_no_rounding_makes_balls_overlap_or_stick_out(kind, seed, radius, size):
    """Exactly, in rational numbers: not even by the last place of a float."""
    rng = np.random.default_rng(seed)
    ball, center = kind(rng.normal(size=size), radius), rng.normal(size=size)
    offsets = [abs(Fraction(a) - Fraction(b)) for a, b in zip(center.tolist(), ball.center.tolist())]
    power = ball.order
    distance = sum(offset**power for offset in offsets)  # squared in ℓ2, where its root is irrational
    inside, outside = ball.largest_inside(center), ball.largest_outside(center)
    if inside is not None:
        assert (Fraction(radius) - Fraction(inside.radius)) ** power >= distance
    if outside is not None:
        assert (Fraction(radius) + Fraction(outside.radius)) ** power <= distance
        assert (Fraction(radius) + Fraction(ball.distance(center))) ** power <= distance


@BALLS
def test_bad_balls_are_refused(kind):
    with pytest.raises(InvalidValueError, match=r"radius.*\b0\.0"):
        kind(np.zeros(2), 0.0)
    with pytest.raises(InvalidValueError, match="center"):
        kind(np.array([np.nan]), 1.0)
    with pytest.raises(InvalidValueError, match=r"\(3,\).*\(2,\)"):
        kind(np.zeros(2), 1.0).contains(np.zeros(3))


@BALLS
def test_the_center_is_a_copy_nobody_can_change(kind):
    center = np.zeros(2)
    ball = kind(center, 1.0)
    center[0] = 5.0
    assert ball.center[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        ball.center[0] = 1.0


@BALLS
@given(seed=st.integers(0, 2**32 - 1), radius=st.floats(1e-3, 1e3), size=st.integers(1, 200))
def test_every_float_in_the_core_is_claimed(kind, seed, radius, size):
    rng = np.random.default_rng(seed)
    ball = kind(rng.normal(size=size), radius)
    core = ball.core()
    assert ball.radius * (1 - 1e-12) < core.radius < ball.radius
    direction = rng.normal(size=size)
    direction /= np.linalg.norm(direction, ball.order)
    point = ball.center + direction * core.radius * (1 - rng.choice([0.0, 1e-15, 1e-14]))
    exact = np.linalg.norm((point - ball.center).astype(np.longdouble), ball.order)
    assert exact >= core.radius or ball.contains(point)
