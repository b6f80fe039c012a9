"""Ellipsoid geometry; with equal axes it is the ball's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import Ellipsoid, L2Ball


def test_contains_on_each_axis():
    body = Ellipsoid(np.zeros(2), np.array([2.0, 0.5]))
    assert body.contains([1.9, 0.0])
    assert not body.contains([0.0, 0.6])
    assert not body.contains([2.0, 0.0])


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 20))
def test_equal_axes_give_the_ball(seed, size):
    rng = np.random.default_rng(seed)
    center, point, radius = rng.normal(size=size), rng.normal(size=size) * 3, float(rng.uniform(0.2, 2))
    body, ball = Ellipsoid(center, np.full(size, radius)), L2Ball(center, radius)
    assert body.contains(point) == ball.contains(point)
    assert body.distance(point) == pytest.approx(ball.distance(point), rel=1e-6, abs=1e-7)
    assert body.distance(point) <= ball.distance(point) * (1 + 1e-12) + 1e-12
    assert body.log_volume() == pytest.approx(ball.log_volume())


def test_distance_agrees_with_a_general_optimiser_and_never_exceeds_it():
    rng = np.random.default_rng(5)
    for _ in range(10):
        axes, point = rng.uniform(0.3, 2, size=3), rng.normal(size=3) * 4
        body = Ellipsoid(np.zeros(3), axes)
        found = minimize(
            lambda y, point=point: np.sum((y - point) ** 2),
            point / np.linalg.norm(point / axes),
            constraints={"type": "ineq", "fun": lambda y, axes=axes: 1 - np.sum((y / axes) ** 2)},
        )
        expected = math.sqrt(found.fun)
        assert body.distance(point) == pytest.approx(expected, abs=1e-4)
        assert body.distance(point) <= expected + 1e-6


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 20))
def test_largest_inside_and_outside_by_witnesses(seed, size):
    rng = np.random.default_rng(seed)
    body = Ellipsoid(rng.normal(size=size), rng.uniform(0.2, 3, size=size))
    center = body.center + rng.normal(size=size) * body.semi_axes * rng.uniform(0, 1)
    gauge = np.linalg.norm((center - body.center) / body.semi_axes)
    found = body.largest_inside(center) if gauge < 1 else body.largest_outside(center)
    assert found is not None
    assert np.allclose(found.semi_axes / body.semi_axes, abs(1 - gauge), rtol=1e-6, atol=1e-12)
    directions = rng.normal(size=(20, size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for point in center + directions * found.semi_axes * rng.uniform(0, 0.999, size=(20, 1)):
        assert (np.linalg.norm((point - body.center) / body.semi_axes) < 1) == (gauge < 1)


def test_bad_ellipsoids_are_refused():
    with pytest.raises(InvalidValueError, match=r"\(3,\).*\(2,\)"):
        Ellipsoid(np.zeros(2), np.ones(3))
    with pytest.raises(InvalidValueError, match=r"\b0\.0"):
        Ellipsoid(np.zeros(2), np.array([1.0, 0.0]))
