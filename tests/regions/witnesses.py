"""Points that show how far a body can grow at most, found without the library's duals, in extended precision."""

from fractions import Fraction
from typing import Any

import numpy as np

from smoothcert.regions.bodies import GaugeBody

Long = np.longdouble
MARGIN = Long(2e-17)  # relative; long doubles carry 64 bits
assert np.finfo(Long).eps < 1.2e-19, "these judges need 80-bit long doubles"


def _seen(fixed: GaugeBody, candidate: GaugeBody) -> tuple[Any, Any]:
    """Where ``candidate`` is the unit ball at 0: center and axes of ``fixed``."""
    b = candidate.axes.astype(Long)
    offset = candidate.center.astype(Long) - fixed.center.astype(Long)
    return -offset.ravel() / b, fixed.axes.astype(Long) / b


def _nearest(z: Any, e: Any, low: Any, high: Any) -> Any:
    """The point e²z/(e² + t) with Σ(·/e)² = 1, by bisection for t between low and high."""
    for _ in range(200):
        t = (low + high) / 2
        if np.sum(np.square(e * z / (e * e + t))) > 1:
            low = t
        else:
            high = t
    return e * e * z / (e * e + high)


def most_outside(fixed: GaugeBody, candidate: GaugeBody) -> float:
    """A scale at which the two do meet: the gauge of a point that lies inside ``fixed``."""
    z, e = _seen(fixed, candidate)
    z = -z
    if np.sum(np.square(z / e)) <= 1:
        return 0.0
    point = _nearest(z, e, Long(0), np.sqrt(np.sum(np.square(e * z)))) * (1 - MARGIN)
    assert np.sqrt(np.sum(np.square(point / e))) < 1
    return float(np.sqrt(np.sum(np.square(point - z))) * (1 + MARGIN))


def most_inside(fixed: GaugeBody, candidate: GaugeBody) -> float:
    """A scale at which a point of the candidate isn't inside ``fixed``: the gauge of a point on its edge or beyond."""
    z, e = _seen(fixed, candidate)
    z = -z
    if np.sum(np.square(z / e)) >= 1:
        return 0.0
    k = int(np.argmin(e))
    limit = -(e[k] ** 2)
    others = e > e[k]
    y = np.where(others, e * e * z / np.where(others, e * e + limit, 1), 0)
    rest = 1 - np.sum(np.square(y / e))
    if not np.any(z[~others]) and rest > 0:
        y[k] = e[k] * np.sqrt(rest)  # the nearest point is off the center's own plane
        points = [y]
    else:
        points = [_nearest(z, e, limit * (1 - Long(1e-18)), Long(0))]
    straight = z / np.sqrt(np.sum(np.square(z / e))) if np.any(z) else None
    axis = np.zeros_like(z)
    axis[k] = e[k]
    points += [p for p in (straight, axis) if p is not None]
    scales = []
    for point in points:
        beyond = point / np.sqrt(np.sum(np.square(point / e))) * (1 + MARGIN)
        scales.append(np.sqrt(np.sum(np.square(beyond - z))))
    return float(min(scales) * (1 + MARGIN))


def _fractions(values: Any) -> list[Fraction]:
    return [Fraction(v) for v in np.asarray(values, dtype=np.float64).ravel().tolist()]


def cross_outside(fixed: GaugeBody, candidate: GaugeBody) -> Fraction:
    """The exact scale in ℓ1: walk from the candidate's center into ``fixed`` along the cheapest axes first."""
    a, b = _fractions(fixed.axes), _fractions(candidate.axes)
    d = [abs(p - q) for p, q in zip(_fractions(fixed.center), _fractions(candidate.center))]
    over = sum((x / y for x, y in zip(d, a)), Fraction(0)) - 1
    cost = Fraction(0)
    for i in sorted(range(len(d)), key=lambda i: a[i] / b[i]):
        if over <= 0:
            break
        step = min(d[i], over * a[i])
        over -= step / a[i]
        cost += step / b[i]
    return cost


def cross_inside(fixed: GaugeBody, candidate: GaugeBody) -> Fraction:
    """The exact scale in ℓ1: the farthest corner decides."""
    a, b = _fractions(fixed.axes), _fractions(candidate.axes)
    d = [abs(p - q) for p, q in zip(_fractions(fixed.center), _fractions(candidate.center))]
    gauge = sum((x / y for x, y in zip(d, a)), Fraction(0))
    return max(Fraction(0), (1 - gauge) / max(x / y for x, y in zip(b, a)))
