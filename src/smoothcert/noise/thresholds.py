"""Where the cells of a grid end on the scale of probability: whole multiples of 2⁻⁵⁸, from integer arithmetic alone.

Noise ε of standard deviation σ, rounded to the nearest multiple k of a step s, has P[k ≤ j] = F((j + ½)/ρ) with ρ = σ/s
and F the distribution function of ε/σ. These probabilities, rounded to the nearest multiple of 2⁻⁵⁸, are thresholds
for a 58-bit uniform number. The functions here work with 128 binary digits after the point, so that the rounding is
the only error to speak of (tests/noise/test_thresholds.py holds them against 50-digit arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

BITS = 58
"""Binary digits of a threshold. Six bits of a 64-bit word are left, to tell 64 tables apart."""

Thresholds = NDArray[np.uint64]

POINT = 128
"""Binary digits after the point."""
_ONE = 1 << POINT
_PI = 3141592653589793238462643383279502884197169399375105820974944592307816406286 * _ONE // 10**75
_TOP = 1 << BITS
_FAR = 46 * _ONE // 5  # 9.2: P[ε/σ > 9.2] < 2⁻⁶⁴


def normal_thresholds(rho: Fraction) -> Thresholds:
    """2K thresholds of the standard normal distribution for cells of width 1/ρ, centred at −K/ρ, …, K/ρ.

    The tail beyond the last threshold has probability below 2⁻⁵⁹: its threshold would be 2⁵⁸.
    """
    return from_tails(_normal_tails(rho))


def uniform_thresholds(rho: Fraction) -> Thresholds:
    """2K thresholds of the uniform distribution on [−√3, √3] for cells of width 1/ρ."""
    # P[ε > z] = (1 − z/√3)/2, and z/√3 = √(z²/3).
    cells = (Fraction(2 * j + 1, 2) / rho for j in range(int(2 * rho) + 1))  # √3 < 2
    shares = (math.isqrt((z.numerator**2 << 2 * POINT) // (3 * z.denominator**2)) for z in cells)
    return from_tails(max(0, _ONE - share) // 2 for share in shares)


def from_tails(tails: Iterable[int]) -> Thresholds:
    """2K thresholds of a symmetric distribution from P[ε/σ > (j + ½)/ρ] for j = 0, 1, … in units of 2⁻¹²⁸.

    They end where a tail is nearer to 0 than to 2⁻⁵⁸.
    """
    found = []
    for tail in tails:
        units = (tail + (1 << (POINT - BITS - 1))) >> (POINT - BITS)  # the nearest multiple of 2⁻⁵⁸
        if not units:
            break
        found.append(units)
    return np.array(found[::-1] + [_TOP - units for units in found], dtype=np.uint64)


def _normal_tails(rho: Fraction) -> list[int]:
    """P[ε/σ > z] at z = ½/ρ, 3/2/ρ, …, to 9.2, in units of 2⁻¹²⁸ with an error far below 2⁻¹⁰⁰.

    Taylor's series from one point to the next. With c_n = φ⁽ⁿ⁾(z) hⁿ/n!, φ' = −zφ gives
    c_{n+1} = −h (z c_n + h c_{n−1})/(n+1); φ(z + h) = Σ c_n and Φ(z + h) = Φ(z) + h Σ c_n/(n+1). Each step adds a few
    units of error to a φ that shrinks from step to step, so that errors add up and don't grow.
    """
    density = (_ONE << POINT) // math.isqrt(2 * _PI << POINT)  # φ(0) = 1/√(2π)
    step = _ONE * rho.denominator // rho.numerator
    z, tail, h = 0, _ONE // 2, step // 2
    found = []
    while z < _FAR:
        term, before, n = density, 0, 0
        density = area = 0
        while abs(term) > 1 or abs(before) > 1:
            density += term
            area += term // (n + 1)
            n += 1
            term, before = -((h * ((z * term + h * before) >> POINT) >> POINT) // n), term
        tail -= h * area >> POINT
        z += h
        h = step
        found.append(tail)
    return found
