"""Drawing noise in whole steps of a grid: from fair bits, by integer thresholds, in one look-up for most numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise.thresholds import BITS, Thresholds

MOST_TABLES = 1 << (64 - BITS)
"""Different scales that one sampler can serve."""

_PREFIX = 16  # bits of the first look
_SHARED_PREFIX = 13  # with several tables: fewer bits, so that all of them stay in the cache
# From here on a guide's numbers stand for buckets that hold thresholds: no noise is as many steps long. Several tables
# are guided by half as many bytes, where that is so, because they hardly fit into the cache.
_OPEN, _OPEN_OF_SHORT = 1 << 20, 1 << 13
# What is known of such a bucket in one word: its first threshold, whether it has more, and the steps below it.
_STEPS, _ZERO = 18, 1 << 17
_SEVERAL = np.uint64(1 << _STEPS)
_TOGETHER = 1 << 15  # numbers drawn together: part of the stream's definition, and small enough for the cache

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
        opened = np.flatnonzero(inside)
        self._first = opened.searchsorted(np.arange(len(tables)) * buckets)  # of each table's open buckets
        short = which is not None and self.reach < _OPEN_OF_SHORT
        self._guide = low.astype(np.int16 if short else np.float32)
        self._open = _OPEN_OF_SHORT if short else _OPEN
        self._guide[opened] = self._open + np.arange(opened.size) - self._first[opened >> self._prefix]
        cut = self.thresholds[below[opened]] & _ones(self._rest)
        several = (inside[opened] > 1).astype(np.uint64)
        steps = (low[opened] + _ZERO).astype(np.uint64)
        self._words = cut << np.uint64(_STEPS + 1) | several << np.uint64(_STEPS) | steps
        self.which = None if which is None else np.ascontiguousarray(which, dtype=np.int64).reshape(-1)
        """The table of each coordinate, counted through; None where there is one table."""

    def draw(self, out: Floats, bits: np.random.BitGenerator) -> None:
        """Overwrite the contiguous array ``out``, of shape (rows, *input shape), with whole numbers of steps."""
        flat = out.reshape(-1)
        tables = self._tables()
        together = _TOGETHER if tables is None else tables.size
        # Every bucket exists; mode "clip" skips a check and a copy, and needs the type of the guide.
        direct = flat.dtype == self._guide.dtype
        looked = np.empty(0 if direct else together, self._guide.dtype)
        parts: tuple[list[NDArray[Any]], ...] = ([], [], [], [])
        for start in range(0, flat.size, together):
            piece = flat[start : start + together]
            prefix = _words(bits, -(-piece.size // 4)).view("<u2")[: piece.size]
            if tables is not None:
                prefix = tables[: piece.size] + (prefix >> (_PREFIX - self._prefix))
            found = piece if direct else looked[: piece.size]
            self._guide.take(prefix, out=found, mode="clip")
            opened = np.flatnonzero(found >= self._open)
            if not direct:
                piece[:] = found
            known = opened + start, found.take(opened), prefix.take(opened), _words(bits, opened.size)
            for part, one in zip(parts, known):
                part.append(one)
        if flat.size:  # settled once for all pieces, which are too small to be worth many small steps each
            undecided, places, buckets, rests = map(_joined, parts)
            flat[undecided] = self._settled(places, buckets, rests)

    def _tables(self) -> NDArray[np.int64] | None:
        """Where the table of each number begins, for as many rows as are drawn together."""
        if self.which is None:
            return None
        return np.tile(self.which << self._prefix, max(1, _TOGETHER // self.which.size))

    def _settled(
        self, places: NDArray[Any], buckets: NDArray[np.integer], rests: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """The numbers of buckets that hold thresholds, by the rest of their bits."""
        place = places.astype(np.intp) - self._open
        if self.which is not None:
            place += self._first.take(buckets >> self._prefix)
        rest, word = rests >> np.uint64(64 - self._rest), self._words.take(place)
        steps: NDArray[np.int64] = (word & (_SEVERAL - np.uint64(1))).astype(np.int64) - _ZERO
        steps += rest >= word >> np.uint64(_STEPS + 1)
        several = np.flatnonzero(word & _SEVERAL)
        whole = (buckets[several].astype(np.uint64) << np.uint64(self._rest)) | rest[several]
        table = (whole >> np.uint64(BITS)).astype(np.intp)
        steps[several] = self.thresholds.searchsorted(whole, side="right") - self.zeros[table]
        return steps


def _joined(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _words(bits: np.random.BitGenerator, count: int) -> NDArray[np.uint64]:
    """64 fair bits each, in the same order of bytes on every machine."""
    return np.asarray(bits.random_raw(count)).astype("<u8", copy=False)


def _ones(count: int) -> np.uint64:
    return np.uint64((1 << count) - 1)
