"""Sketches: a few float32 numbers per region that rule out, certainly, most regions a question can't meet."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCKS = 64
_CHUNK = 1 << 16
_HALF_ULP = 2.0**-53
_HALF_ULP_SINGLE = 2.0**-24
_UNDERFLOW = 1e-33  # more than float32 can lose below its smallest normal number, in a sum of squares


class SketchIndex:
    """Finds every stored center within reach of a point, and some that are not.

    A sketch holds the projection of x onto functions constant on blocks of coordinates (patches of an image), and the
    norm of what the projection leaves out. An orthogonal projection shortens, and norms differ by no more than the
    vectors do, so the Euclidean distance of two sketches is at most that of the points. Every rounding on the way is
    bounded and added to the threshold: the answer can only include too much. What float32 can't hold counts as near.
    """

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self._blocks = _block_numbers(input_shape)
        self._scales = 1 / np.sqrt(np.bincount(self._blocks))
        dimension, blocks = len(self._blocks), len(self._scales)
        self._width = blocks + 1
        # Relative to ‖x‖: the error of a computed projection (Cauchy-Schwarz, one rounding per term), of the
        # remainder's norm, |√a − √b| ≤ √|a − b|, and of storing both in float32.
        product = (2 * math.sqrt(blocks) + 4) * (dimension + 16) * _HALF_ULP
        self._error = 1.01 * (math.sqrt(product) + product + 2 * _HALF_ULP_SINGLE)
        # Of ‖a‖² − 2ab + ‖b‖² in float32, relative to ‖a‖² + ‖b‖².
        self._square_error = 4 * (self._width + 8) * _HALF_ULP_SINGLE
        self._chunks: list[_Chunk] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Main memory held."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def add(self, points: Floats, reaches: Floats) -> None:
        """Append points (one per row), each the center of a region within Euclidean distance ``reach`` of it."""
        sketches, slack = self._sketch(points)
        squares = np.square(sketches.astype(np.float64)).sum(axis=1)
        thresholds = (reaches + slack) * (1 + 1e-6)
        done = 0
        while done < len(points):
            if not self._chunks or self._chunks[-1].size == _CHUNK:
                self._chunks.append(_Chunk(self._width))
            chunk = self._chunks[-1]
            stop = min(len(points), done + _CHUNK - chunk.size)
            rows = slice(done, stop)
            chunk.extend(sketches[rows], squares[rows] * (1 - self._square_error), thresholds[rows])
            self._size += stop - done
            done = stop

    def near(self, point: Floats, reach: float, start: int = 0) -> NDArray[np.int64]:
        """Positions from ``start`` on of all regions that may come within ``reach`` of ``point``."""
        sketches, slack = self._sketch(point.reshape(1, -1))
        sketch = sketches[0]
        square = float(np.square(sketch.astype(np.float64)).sum()) * (1 - self._square_error)
        with np.errstate(over="ignore"):
            margin = np.float32((reach + float(slack[0])) * (1 + 1e-6))
            least = np.float32(square)
        found = [
            chunk.near(sketch, least, margin, max(0, start - number * _CHUNK)) + number * _CHUNK
            for number, chunk in enumerate(self._chunks)
            if start < number * _CHUNK + chunk.size
        ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def _sketch(self, points: Floats) -> tuple[NDArray[np.float32], Floats]:
        """Sketches, and how far each may be from the exact one."""
        sums = [np.bincount(self._blocks, weights=point, minlength=len(self._scales)) for point in points]
        projected = np.stack(sums) * self._scales
        squares = np.einsum("ij,ij->i", points, points)
        remainder = np.sqrt(np.maximum(0.0, squares - np.einsum("ij,ij->i", projected, projected)))
        with np.errstate(over="ignore", under="ignore"):
            sketches = np.concatenate([projected, remainder[:, np.newaxis]], axis=1).astype(np.float32)
        # Coordinates too small for their squares leave a norm of 0: the sketch is then off by less than this.
        return sketches, self._error * np.sqrt(squares) + 1e-30


class _Chunk:
    """A fixed number of places, filled from the front: growing never copies."""

    def __init__(self, width: int) -> None:
        self.size = 0
        self._sketches = np.empty((_CHUNK, width), dtype=np.float32)
        self._squares = np.empty(_CHUNK, dtype=np.float32)
        self._thresholds = np.empty(_CHUNK, dtype=np.float32)

    @property
    def nbytes(self) -> int:
        return self._sketches.nbytes + self._squares.nbytes + self._thresholds.nbytes

    def extend(self, sketches: NDArray[np.float32], squares: Floats, thresholds: Floats) -> None:
        rows = slice(self.size, self.size + len(sketches))
        with np.errstate(over="ignore", under="ignore"):
            self._sketches[rows] = sketches
            self._squares[rows] = squares
            self._thresholds[rows] = thresholds
        self.size += len(sketches)

    def near(
        self, sketch: NDArray[np.float32], square: np.float32, margin: np.float32, start: int
    ) -> NDArray[np.int64]:
        rows = slice(start, self.size)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # Not by BLAS: the time goes into reading, and its threads wait for each other on a busy machine.
            distances = np.einsum("ij,j->i", self._sketches[rows], sketch)
            distances *= np.float32(-2)
            distances += self._squares[rows]
            distances += square
            limits = self._thresholds[rows] + margin
            limits *= limits
            limits *= np.float32(1 + 1e-6)
            limits += np.float32(_UNDERFLOW)
            # "Not farther" instead of "nearer": NaN and what overflowed on the way stay in.
            return np.flatnonzero(~((distances > limits) & (distances < np.inf))) + start


def _block_numbers(input_shape: tuple[int, ...]) -> NDArray[np.int64]:
    """To which block each coordinate belongs: a grid over the last two axes, or stretches of a vector."""
    size = math.prod(input_shape)
    planes = math.prod(input_shape[:-2]) if len(input_shape) > 1 else _BLOCKS
    if planes * 4 > _BLOCKS:
        return np.arange(size, dtype=np.int64) * min(_BLOCKS, size) // size
    side = math.isqrt(_BLOCKS // planes)
    rows, columns = (np.arange(length) * min(side, length) // length for length in input_shape[-2:])
    grid = rows[:, np.newaxis] * side + columns
    numbers = grid + np.arange(planes)[:, np.newaxis, np.newaxis] * side**2
    _, blocks = np.unique(numbers, return_inverse=True)
    return np.asarray(blocks, dtype=np.int64).ravel()
