"""Drawing noise in whole steps of a grid: from fair bits, by integer thresholds, in one look-up for most numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise.thresholds import BITS, Thresholds

MOST_TABLES = 1 << (64 - BITS)
"""Different scales that one sampler can serve."""

_PREFIX = 16  # bits of the first look
_SHARED_PREFIX = 13  # with several tables: fewer bits, so that all of them stay in the cache
_OPEN = 1 << 20  # stands for a bucket that holds thresholds; no noise is as many steps long
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
        self._guide = low.astype(np.float32)
        self._guide[opened] = _OPEN + np.arange(opened.size)
        self._low = low[opened]
        self._cut = self.thresholds[below[opened]] & _ones(self._rest)
        self._several = inside[opened] > 1
        self.which = None if which is None else np.ascontiguousarray(which, dtype=np.int64).reshape(-1)
        """The table of each coordinate, counted through; None where there is one table."""

    def draw(self, out: Floats, bits: np.random.BitGenerator) -> None:
        """Overwrite the contiguous array ``out``, of shape (rows, *input shape), with whole numbers of steps."""
        flat = out.reshape(-1)
        # Every bucket exists; mode "clip" skips a check and a copy, and needs the type of the guide.
        found = flat if flat.dtype == np.float32 else np.empty(flat.size, np.float32)
        tables = self._tables()
        together = _TOGETHER if tables is None else tables.size
        undecided, buckets, rests = [], [], []
        for start in range(0, flat.size, together):
            piece = found[start : start + together]
            prefix = _words(bits, -(-piece.size // 4)).view("<u2")[: piece.size]
            if tables is not None:
                prefix = tables[: piece.size] + (prefix >> (_PREFIX - self._prefix))
            self._guide.take(prefix, out=piece, mode="clip")
            opened = np.flatnonzero(piece >= _OPEN)
            undecided.append(opened + start)
            buckets.append(prefix[opened])
            rests.append(_words(bits, opened.size))
        if undecided:  # settled once for all pieces, which are too small to be worth many small steps each
            self._settle(found, *map(np.concatenate, (undecided, buckets, rests)))
        if found is not flat:
            flat[:] = found

    def _tables(self) -> NDArray[np.int64] | None:
        """Where the table of each number begins, for as many rows as are drawn together."""
        if self.which is None:
            return None
        return np.tile(self.which << self._prefix, max(1, _TOGETHER // self.which.size))

    def _settle(
        self,
        found: Floats,
        undecided: NDArray[np.intp],
        buckets: NDArray[np.integer],
        rests: NDArray[np.uint64],
    ) -> None:
        """Put the numbers of buckets that hold thresholds in their places, by the rest of their bits."""
        rest = rests >> np.uint64(64 - self._rest)
        place = found[undecided].astype(np.intp) - _OPEN
        steps = self._low[place] + (rest >= self._cut[place])
        several = np.flatnonzero(self._several[place])
        whole = (buckets[several].astype(np.uint64) << np.uint64(self._rest)) | rest[several]
        table = (whole >> np.uint64(BITS)).astype(np.intp)
        steps[several] = self.thresholds.searchsorted(whole, side="right") - self.zeros[table]
        found[undecided] = steps


def _words(bits: np.random.BitGenerator, count: int) -> NDArray[np.uint64]:
    """64 fair bits each, in the same order of bytes on every machine."""
    return np.asarray(bits.random_raw(count)).astype("<u8", copy=False)


def _ones(count: int) -> np.uint64:
    return np.uint64((1 << count) - 1)
