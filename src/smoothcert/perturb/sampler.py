"""Drawing noise in whole steps of a grid: from fair bits, by integer thresholds, in one look-up for most numbers.

Noise ε of standard deviation σ, rounded to the nearest multiple k of a step s, has P[k ≤ j] = F((j + ½)/ρ) with ρ = σ/s
and F the distribution function of ε/σ. These probabilities, rounded to the nearest multiple of 2⁻⁵⁸, are thresholds
for a 58-bit uniform number. They are computed with 128 binary digits after the point, in integers alone, so that the
rounding is the only error to speak of (tests/perturb/test_thresholds.py compares them with 50-digit arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smoothcert.tally import STEPS_TOGETHER

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


MOST_TABLES = 1 << (64 - BITS)
"""Different scales that one sampler can serve."""

_PREFIX = 16  # bits of the first look
_SHARED_PREFIX = 13  # with several tables: fewer bits, so that all of them stay in the cache
# From here on a guide's numbers stand for buckets that hold thresholds: no noise is as many steps long. Several tables
# are guided by half as many bytes, where that is so, because they hardly fit into the cache.
_OPEN, _OPEN_OF_SHORT = 1 << 20, 1 << 13
Floats = NDArray[np.floating]


class CellSampler:
    """Draws independent whole numbers k with P[k ≤ j] = threshold_j/2⁵⁸, by one table or by one a coordinate.

    A number's first bits put it into a bucket. Most buckets lie between two thresholds and settle it; in the others the
    rest of its 58 bits do. So every number is what a 58-bit uniform integer gives among the thresholds, exactly.
    """

    def __init__(self, tables: Sequence[Thresholds], which: NDArray[np.intp] | None = None) -> None:
        """``which``: the table of each coordinate of an input; None where one table serves all."""
        if len(tables) > MOST_TABLES:
            raise ValueError(f"at most {MOST_TABLES} tables fit into one sampler, got {len(tables)}")
        self._prefix = _PREFIX if which is None else _SHARED_PREFIX
        self._rest = BITS - self._prefix
        buckets = 1 << self._prefix
        halves = np.array([len(table) // 2 for table in tables])
        self.reach = int(halves.max())
        """The largest number of steps that can be drawn."""
        # One sorted array for all tables: a table's number stands in front of its thresholds' bits.
        joined = [table + (np.uint64(number) << np.uint64(BITS)) for number, table in enumerate(tables)]
        self.thresholds: Thresholds = np.concatenate(joined)
        """Those of all tables, ascending."""
        self.zeros = np.cumsum(2 * halves) - halves
        """How many of them lie below each table's 0."""
        starts = np.arange(len(tables) * buckets, dtype=np.uint64) << np.uint64(self._rest)
        below = self.thresholds.searchsorted(starts, side="right")
        inside = self.thresholds.searchsorted(starts | _ones(self._rest), side="right") - below
        low = below - np.repeat(self.zeros, buckets)
        # Buckets that hold thresholds: whether they have more than one, the first, and the steps below it.
        self._buckets = np.flatnonzero(inside)
        self._several = inside[self._buckets] > 1
        self._cut = self.thresholds[below[self._buckets]] & _ones(self._rest)
        self._low = low[self._buckets].astype(np.float32)
        first = self._buckets.searchsorted(np.arange(len(tables)) * buckets)  # of each table's
        short = which is not None and self.reach < _OPEN_OF_SHORT
        self._guide = low.astype(np.int16 if short else np.float32)
        self._open = _OPEN_OF_SHORT if short else _OPEN
        table = self._buckets >> self._prefix
        self._guide[self._buckets] = self._open + np.arange(self._buckets.size) - first[table]
        self.which = None if which is None else np.ascontiguousarray(which, dtype=np.int64).reshape(-1)
        """The table of each coordinate, counted through; None where there is one table."""
        self._first = None if self.which is None else first[self.which]

    def draw(self, out: Floats, bits: np.random.BitGenerator) -> None:
        """Overwrite the contiguous array ``out``, of shape (rows, *input shape), with whole numbers of steps."""
        flat = out.reshape(-1)
        tables = self._tables()
        together = STEPS_TOGETHER if tables is None else tables.size
        # Every bucket exists; mode "wrap" skips a check and a copy, and needs the type of the guide.
        direct = flat.dtype == self._guide.dtype
        looked = np.empty(0 if direct else together, self._guide.dtype)
        room = np.empty(0 if tables is None else together, np.int64)
        opened, rests = np.empty(flat.size, dtype=bool), []
        for start in range(0, flat.size, together):
            piece = flat[start : start + together]
            prefix = _words(bits, -(-piece.size // 4)).view("<u2")[: piece.size]
            bucket: NDArray[np.integer] = prefix
            if tables is not None:
                bucket = np.add(
                    tables[: piece.size], prefix >> (_PREFIX - self._prefix), out=room[: piece.size]
                )
            found = piece if direct else looked[: piece.size]
            self._guide.take(bucket, out=found, mode="wrap")
            undecided = np.greater_equal(found, self._open, out=opened[start : start + together])
            if not direct:
                piece[:] = found
            rests.append(_words(bits, int(np.count_nonzero(undecided))))
        if flat.size:  # settled once for all pieces, which are too small to be worth many small steps each
            places = np.flatnonzero(opened)
            flat[places] = self._settled(places, flat.take(places), np.concatenate(rests))

    def _tables(self) -> NDArray[np.int64] | None:
        """Where the table of each number begins, for as many rows as are drawn together."""
        if self.which is None:
            return None
        return np.tile(self.which << self._prefix, max(1, STEPS_TOGETHER // self.which.size))

    def _settled(self, places: NDArray[np.intp], found: Floats, rests: NDArray[np.uint64]) -> Floats:
        """The numbers at these places, whose buckets hold thresholds, by the rest of their bits."""
        bucket = found.astype(np.intp)
        bucket -= self._open
        if self._first is not None:
            bucket += self._first.take(places % self._first.size)
        rest = rests >> np.uint64(64 - self._rest)
        steps: Floats = self._low.take(bucket) + (rest >= self._cut.take(bucket))
        several = np.flatnonzero(self._several.take(bucket))
        whole = (self._buckets[bucket[several]].astype(np.uint64) << np.uint64(self._rest)) | rest[several]
        table = (whole >> np.uint64(BITS)).astype(np.intp)
        steps[several] = self.thresholds.searchsorted(whole, side="right") - self.zeros[table]
        return steps


def _words(bits: np.random.BitGenerator, count: int) -> NDArray[np.uint64]:
    """64 fair bits each, in the same order of bytes on every machine."""
    return np.asarray(bits.random_raw(count)).astype("<u8", copy=False)


def _ones(count: int) -> np.uint64:
    return np.uint64((1 << count) - 1)
