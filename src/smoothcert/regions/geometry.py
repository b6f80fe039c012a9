"""The arithmetic that keeps a region's answers on the safe side."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.rounding import down, up

Point = NDArray[np.float64]

_HALF_ULP = 2.0**-53
FUNCTION_ERROR = 1e-14
"""The margin of ``smoothcert.rounding.down``."""


def as_center(center: ArrayLike) -> Point:
    """A read-only float64 copy, refused if a coordinate isn't finite."""
    point = np.array(center, dtype=np.float64)
    if not np.isfinite(point).all():
        raise InvalidValueError("a region's center must be finite")
    point.setflags(write=False)
    return point


def difference(point: ArrayLike, center: Point) -> Point:
    """``point − center``, flat; refuses another shape, and what isn't real numbers."""
    given = np.asarray(point)
    if given.shape != center.shape:
        raise InvalidValueError(f"a point of shape {given.shape} doesn't fit a center of {center.shape}")
    if given.dtype.kind not in "biuf":
        raise InvalidValueError(f"a point must hold real numbers, got dtype {given.dtype}")
    if (given.dtype.itemsize >= 8 and given.dtype.kind in "iu") or given.dtype.itemsize > 8:
        given = given.astype(np.longdouble)  # float64 would round the point itself, which no margin is for
    return np.asarray(given - center, dtype=np.float64).ravel()


def stable_norm(values: Point, order: int) -> float:
    """The ℓ1 or ℓ2 norm of a flat vector, whatever the size of its squares."""
    largest = float(np.abs(values).max())
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest, order))


def all_down(values: Point, relative: float = FUNCTION_ERROR) -> Point:
    """:func:`smoothcert.rounding.down` for each of many positive numbers: the same floats."""
    return np.asarray(np.nextafter(values - values * relative, -np.inf))


def length_up(norm: str, values: Point, times: int = 1) -> float:
    """The length of a vector in a norm, each of its numbers taken so many ``times``; rounded up."""
    found = times * values.sum() if norm == "l1" else math.sqrt(times * (values * values).sum())
    return float(found) * (1 + 1e-9)


def norm_error(dimension: int) -> float:
    """Bound of the relative error of a ``dimension``-term norm of rounded differences.

    Each difference carries one rounding, each product, quotient or power one, a sum at most one per term.
    """
    return (dimension + 8) * _HALF_ULP


_STEPS = 100
_CLOSE = 1e-13
_NEAR_POLE = 1.0 - 2.0**-30  # costs 5e-10 of a scale, keeps denominators far above their errors
_ABSOLUTE = 16 * 2.0**-53  # twice the error of 1 − νρ², with ρ ≤ 1 a quotient of two quotients


def outside_scale(q: Point, r: Point, order: int) -> float:
    """A lower bound of the largest s for which the body q + s·r doesn't meet the open unit ball; 0 if there is none.

    With any vector m, the half-space ⟨m, x⟩ < ‖m‖* holds the unit ball, and {⟨m, x⟩ > ⟨m, q⟩ − s‖r·m‖*} the other
    body (‖·‖* the dual norm): they are disjoint while s ≤ (⟨m, q⟩ − ‖m‖*) / ‖r·m‖*. The best m has that as equality.
    """
    with np.errstate(all="ignore"):
        m = _normal_l2(np.abs(q), r) if order == 2 else _normal_l1(np.abs(q), r)
        largest = float(m.max(initial=0.0))
        if not (np.isfinite(m).all() and largest > 0):
            return 0.0
        m = m / largest
        error = norm_error(q.size)
        room = down(float(np.abs(q) @ m), error) - up(_dual_norm(m, order), error)
        widest = up(_dual_norm(r * m, order), error)
        scale = down(down(room) / widest) if room > 0 and widest > 0 else 0.0
    return max(0.0, scale) if math.isfinite(scale) else 0.0


def inside_scale(q: Point, r: Point, order: int) -> float:
    """A lower bound of the largest s for which the body q + s·r lies in the unit ball; 0 if there is none.

    ‖q‖ + s·max r < 1 is enough by the triangle inequality, and in ℓ1 also needed (a corner reaches it). In ℓ2, no
    point of norm 1 or more is in the body if s² ≤ μ(1 − Σ q_i²/(1 − μ r_i²)) for some 0 ≤ μ ≤ 1/max r²: the
    Lagrangian dual of the smallest gauge on the sphere, without a gap (S-lemma).
    """
    error = norm_error(q.size)
    widest = float(r.max())
    room = 1.0 - up(stable_norm(q, order), error)
    if not room > 0:
        return 0.0
    simple = down(down(room) / up(widest))
    if order == 1:
        return max(0.0, simple)
    squares = np.square(r / widest)
    t = _root(np.abs(q), squares, -_NEAR_POLE)
    nu = max(0.0, -t)  # μ·max r², in [0, 1)
    left = 1.0 - nu * squares - _ABSOLUTE
    if not (left > 0).all():
        return max(0.0, simple)
    total = up(float(np.sum(np.square(q) / left)), 2 * error)
    square = down(nu * down(1.0 - total)) if total < 1 else 0.0
    dual = down(down(math.sqrt(square)) / up(widest)) if square > 0 else 0.0
    return max(0.0, simple, dual)


def _dual_norm(m: Point, order: int) -> float:
    return stable_norm(m, 2) if order == 2 else float(np.abs(m).max())


def _normal_l2(q: Point, r: Point) -> Point:
    """The normal at the point of the unit ball nearest to the body: q/(1 + t·r²), t ≥ 0, of norm 1."""
    squares = np.square(r / r.max())
    t = _root(q, squares, 0.0)
    return np.asarray(q / (1.0 + t * squares))


def _normal_l1(q: Point, r: Point) -> Point:
    """min(1, κ/r) with the best κ, which is one of the r: (Σ q min(1, κ/r) − 1)/κ is monotone between them."""
    order = np.argsort(r)
    sorted_q, sorted_r = q[order], r[order]
    below = np.cumsum(sorted_q)
    ratios = sorted_q / sorted_r
    above = np.cumsum(ratios[::-1])[::-1] - ratios
    best = int(np.argmax((below - 1.0) / sorted_r + above))
    return np.asarray(np.minimum(1.0, sorted_r[best] / r))


def _root(q: Point, squares: Point, start: float) -> float:
    """t with ‖q/(1 + t·squares)‖ = 1, from ``start`` on its left by Newton steps on the inverse of the norm.

    The inverse norm is concave in t (Moré & Sorensen), so that the steps grow towards the root and don't pass it.
    A start where the norm is 1 or less already is the answer: there is no root to its right.
    """
    t = start
    scale = float(q.max())
    if scale == 0.0:
        return t
    unit = q / scale
    for _ in range(_STEPS):
        left = 1.0 + t * squares
        m = unit / left
        norm = float(np.linalg.norm(m))
        slope = float(np.sum(m * m * squares / left))
        excess = norm * scale - 1.0
        if not (excess > 0 and slope > 0):
            return t
        step = excess * norm * norm / slope
        if not math.isfinite(t + step):
            return t
        t += step
        if abs(step) <= _CLOSE * abs(t):
            return t
    return t
