"""A judge of ellipsoids and cross-polytopes by other proofs than the library's, verified in exact fractions."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from smoothcert.regions.bodies import GaugeBody
from tests.regions.witnesses import cross_inside, cross_outside

_CLEAR = 1e-9  # far more than doubles can be wrong by


def fractions(values: NDArray[Any]) -> list[Fraction]:
    return [Fraction(value) for value in np.asarray(values, dtype=np.float64).ravel().tolist()]


def _offset(a: GaugeBody, point: NDArray[Any]) -> list[Fraction]:
    return [p - c for p, c in zip(fractions(point), fractions(a.center))]


def holds(body: GaugeBody, point: NDArray[Any]) -> bool:
    """Whether the open body holds the point, exactly; doubles decide only what they decide clearly."""
    gauge = float(np.linalg.norm((point - body.center).ravel() / body.axes, body.order))
    if abs(gauge - 1) > _CLEAR:
        return gauge < 1
    powers = (abs(d / a) ** body.order for d, a in zip(_offset(body, point), fractions(body.axes)))
    return sum(powers, Fraction(0)) < 1


def _mixed(log_odds: float, d: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> float:
    """min over x of w·gauge₁(x)² + (1−w)·gauge₂(x)² for the weight w = odds/(1 + odds)."""
    odds = np.exp(log_odds)
    return float(np.sum(np.square(d / np.sqrt(a * a / odds + b * b)) / (1 + odds)))


def certainly_disjoint(first: GaugeBody, second: GaugeBody) -> bool:
    """In ℓ1 exactly. In ℓ2 by a weight w for which w·gauge₁² + (1−w)·gauge₂² is at least 1 everywhere, exactly."""
    a, b = first.axes, second.axes
    d = (second.center - first.center).ravel()
    if np.linalg.norm(d) > (first.reach + second.reach) * (1 + _CLEAR):
        return True
    if first.order == 1:
        return cross_outside(first, second) >= 1
    best = 0.0
    for width in (300.0, 20.0, 2.0, 0.2):  # log-concave in the log-odds: zoom in, then finish
        grid = best + np.linspace(-width, width, 41)
        best = float(grid[np.argmax([_mixed(one, d, a, b) for one in grid])])
    if _mixed(best, d, a, b) > 1 + _CLEAR:
        return True
    odds = Fraction(
        float(
            np.exp(
                minimize_scalar(
                    lambda one: -_mixed(one, d, a, b),
                    bounds=(best - 0.02, best + 0.02),
                    method="bounded",
                    options={"xatol": 1e-12},
                ).x
            )
        )
    )
    terms = (
        z**2 / (x**2 / odds + y**2)
        for z, x, y in zip(_offset(first, second.center), fractions(a), fractions(b))
    )
    return sum(terms, Fraction(0)) >= 1 + odds


def certainly_inside(outer: GaugeBody, inner: GaugeBody) -> bool:
    """By the triangle inequality, which loses nothing between bodies of one shape."""
    if outer.order == 1:
        return cross_inside(outer, inner) >= 1
    room = 1 - max(y / x for x, y in zip(fractions(outer.axes), fractions(inner.axes)))
    gauge = sum(
        ((d / a) ** 2 for d, a in zip(_offset(outer, inner.center), fractions(outer.axes))), Fraction(0)
    )
    return room >= 0 and gauge <= room**2
