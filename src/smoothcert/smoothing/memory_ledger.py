"""Ledger: a process's verified view of a region memory's store, and how its records are written and found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.files import parse_json
from smoothcert.regions.bodies import BALLS, STRETCHED, CertifiedRegion
from smoothcert.smoothing.stores import base as stores

KINDS = {norm: (ball.kind, STRETCHED[norm].kind) for norm, ball in BALLS.items()}
"""Which kinds of region a memory of a norm may hold."""

_AXES = np.dtype("<f8")
_DTYPES = ("<f4", "<f8")


@dataclass(frozen=True, eq=False)
class StoredAnswer:
    """(x_i, class_i, region_i); the region's center is x_i. ``facts`` is whatever the caller wants kept beside it."""

    predicted: int
    region: CertifiedRegion
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """A header of JSON, a newline, the coordinates: as float32 where that loses nothing; then any semi-axes.

        The header's radius is the largest semi-axis: a region lies in the Euclidean ball of that radius.
        """
        center = self.region.center
        with np.errstate(over="ignore", under="ignore"):
            single = center.astype("<f4")
        coordinates = single if np.array_equal(single.astype(np.float64), center) else center.astype("<f8")
        header = {"class": int(self.predicted), "kind": self.region.kind, "radius": self.region.reach.hex()}
        header |= {"dtype": coordinates.dtype.str, "facts": dict(self.facts)}
        try:
            text = json.dumps(header, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"facts must be JSON values ({error}), got {self.facts}") from None
        axes = self.region.axes.astype(_AXES).tobytes() if self.region.kind not in BALLS else b""
        return text.encode() + b"\n" + coordinates.tobytes() + axes


@dataclass(frozen=True)
class RecordHeader:
    """What a payload says before its coordinates."""

    predicted: int
    kind: str
    radius: float
    facts: Mapping[str, Any]
    axes: NDArray[np.float64] | None = None


def decode_parts(
    payload: bytes, statement: stores.MemoryStatement
) -> tuple[RecordHeader, NDArray[np.float64]]:
    """RecordHeader (with the semi-axes, flat, of what isn't a ball) and coordinates (flat).

    ValueError if they are not those of a record of this statement.
    """
    end = payload.index(b"\n")
    fields = parse_json(payload[:end])
    if not isinstance(fields, dict) or not {"class", "kind", "radius", "dtype", "facts"} <= set(fields):
        raise ValueError("its header lacks fields")
    if fields["kind"] not in KINDS[statement.norm] or fields["dtype"] not in _DTYPES:
        raise ValueError(f"a region of kind {fields['kind']!r} in {fields['dtype']!r} can't be read")
    body, axes = payload[end + 1 :], None
    if fields["kind"] not in BALLS:
        size = statement.dimension * _AXES.itemsize
        axes = np.frombuffer(body[-size:], dtype=_AXES).astype(np.float64)
        body = body[:-size]
    coordinates = np.frombuffer(body, dtype=fields["dtype"]).astype(np.float64)
    if coordinates.size != statement.dimension:
        raise ValueError(f"it has {coordinates.size} coordinates, not {statement.dimension}")
    radius = float.fromhex(fields["radius"])
    if axes is not None and not (np.isfinite(axes).all() and axes.min() > 0 and axes.max() == radius):
        raise ValueError("its semi-axes make no sense")
    header = RecordHeader(int(fields["class"]), fields["kind"], radius, fields["facts"], axes)
    if header.predicted < 0 or not 0 < header.radius < float("inf") or not np.isfinite(coordinates).all():
        raise ValueError("its class, radius or coordinates make no sense")
    return header, coordinates


def decode(payload: bytes, statement: stores.MemoryStatement) -> StoredAnswer:
    """The inverse of :meth:`StoredAnswer.encode`."""
    header, coordinates = decode_parts(payload, statement)
    center = coordinates.reshape(statement.input_shape)
    region: CertifiedRegion
    if header.axes is None:
        region = BALLS[statement.norm](center, header.radius)
    else:
        region = STRETCHED[statement.norm](center, header.axes.reshape(statement.input_shape))
    return StoredAnswer(header.predicted, region, header.facts)


Floats = NDArray[np.float64]

_BLOCKS = 64
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
        # Relative to ‖x‖: the error of a computed projection (Cauchy-Schwarz, one rounding per term), of the
        # remainder's norm, |√a − √b| ≤ √|a − b|, and of storing both in float32.
        product = (2 * math.sqrt(blocks) + 4) * (dimension + 16) * _HALF_ULP
        self._error = 1.01 * (math.sqrt(product) + product + 2 * _HALF_ULP_SINGLE)
        # Of ‖a‖² − 2ab + ‖b‖² in float32, relative to ‖a‖² + ‖b‖².
        self._square_error = 4 * (blocks + 9) * _HALF_ULP_SINGLE
        self._sketches, self._squares, self._thresholds = (
            np.empty(shape, dtype=np.float32) for shape in ((0, blocks + 1), 0, 0)
        )
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Main memory held."""
        return self._sketches.nbytes + self._squares.nbytes + self._thresholds.nbytes

    def add(self, points: Floats, reaches: Floats) -> None:
        """Append points (one per row), each the center of a region within Euclidean distance ``reach`` of it."""
        sketches, slack = self._sketch(points)
        squares = np.square(sketches.astype(np.float64)).sum(axis=1)
        rows = slice(self._size, self._size + len(points))
        if rows.stop > len(self._squares):
            room = max(rows.stop - len(self._squares), len(self._squares) // 4)
            self._sketches, self._squares, self._thresholds = (
                np.concatenate([held, np.empty((room, *held.shape[1:]), dtype=np.float32)])
                for held in (self._sketches, self._squares, self._thresholds)
            )
        with np.errstate(over="ignore", under="ignore"):
            self._sketches[rows] = sketches
            self._squares[rows] = squares * (1 - self._square_error)
            self._thresholds[rows] = (reaches + slack) * (1 + 1e-6)
        self._size = rows.stop

    def near(self, point: Floats, reach: float, start: int = 0) -> NDArray[np.int64]:
        """Positions from ``start`` on of all regions that may come within ``reach`` of ``point``."""
        (sketch,), slack = self._sketch(point.reshape(1, -1))
        square = float(np.square(sketch.astype(np.float64)).sum()) * (1 - self._square_error)
        rows = slice(start, self._size)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # Not by BLAS: the time goes into reading, and its threads wait for each other on a busy machine.
            distances = np.einsum("ij,j->i", self._sketches[rows], sketch)
            distances *= np.float32(-2)
            distances += self._squares[rows]
            distances += np.float32(square)
            limits = self._thresholds[rows] + np.float32((reach + float(slack[0])) * (1 + 1e-6))
            limits *= limits
            limits *= np.float32(1 + 1e-6)
            limits += np.float32(_UNDERFLOW)
            # "Not farther" instead of "nearer": NaN and what overflowed on the way stay in.
            return np.flatnonzero(~((distances > limits) & (distances < np.inf))) + start

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


_BATCH = 1024
_FETCHED = 256


class Ledger:
    """Holds sketches and hashes, never the inputs: those stay in the store and are verified whenever they are read.

    Once anything is found to be missing or changed, every later call fails with the same error: a memory that is
    wrong about one record must not answer about others.
    """

    def __init__(self, store: stores.Store, known: stores.Head | None = None) -> None:
        self.store = store
        self._known = known
        self._start = stores.genesis(store.statement)
        self._hashes = bytearray()
        self._index = SketchIndex(store.statement.input_shape)
        self._broken: stores.IncompleteMemoryError | None = None
        self.refresh()
        with store.exclusive():  # no process is between writing a row and moving the head
            self.refresh_inside()
        if known is not None and self._hash_of(known.count) != known.hash:
            raise self._fail(f"record {known.count} is not the one noted ({known}): it was lost or replaced")

    def __len__(self) -> int:
        return len(self._index)

    @property
    def head(self) -> stores.Head:
        """The last record that was verified."""
        return stores.Head(len(self), self._hash_of(len(self)) or b"")

    @property
    def nbytes(self) -> int:
        """Main memory held."""
        return len(self._hashes) + self._index.nbytes

    def refresh(self) -> None:
        """Take in, and verify, what was committed since; fails if anything seen before is gone."""
        self._check_usable()
        head = self.store.head()
        if head != self.head:
            if head.count <= len(self):
                raise self._fail(f"{len(self)} records were there before, now the head is of {head.count}")
            rows = self.store.rows(len(self), head.count)
            while batch := list(islice(rows, _BATCH)):
                self._take(batch)
            if self.head != head:
                raise self._fail(f"the head states {head.count} records, but they end with {self.head.count}")

    def refresh_inside(self) -> None:
        """The same inside a transaction, where there can be no row beyond the head."""
        self.refresh()
        last = self.store.last_id()
        if last != len(self):
            raise self._fail(f"the head states {len(self)} records, but there is a record {last}")

    def near(
        self, point: NDArray[np.float64], reach: float, start: int = 0
    ) -> Iterator[tuple[int, StoredAnswer]]:
        """(number, answer) of every record after ``start`` whose region may come within ``reach`` of ``point``.

        Distances are Euclidean. Some of what comes is farther away; nothing nearer is left out.
        """
        self._check_usable()
        positions = self._index.near(point.ravel(), reach, start)
        for begin in range(0, len(positions), _FETCHED):
            yield from self.read([int(position) + 1 for position in positions[begin : begin + _FETCHED]])

    def read(self, numbers: Sequence[int]) -> list[tuple[int, StoredAnswer]]:
        """(number, answer) of these records, given in order; each is verified anew."""
        self._check_usable()
        rows = self.store.fetch(numbers)
        missing = set(numbers) - {row.id for row in rows}
        if missing:
            raise self._fail(f"record {min(missing)} is missing")
        return [self._decoded(row) for row in rows]

    def contradiction(self, first: int, second: int) -> stores.IncompleteMemoryError:
        """Two records of different classes that claim one point: the memory is unsound already."""
        return self._fail(f"records {first} and {second} give different classes to one input")

    def _decoded(self, row: stores.Row) -> tuple[int, StoredAnswer]:
        previous = self._hash_of(row.id - 1)
        if row.hash != self._hash_of(row.id) or previous is None or stores.breach(previous, row.id, row):
            raise self._fail(f"record {row.id} is not what it was when it was read first")
        return row.id, decode(row.payload, self.store.statement)

    def _take(self, rows: list[stores.Row]) -> None:
        points = np.empty((len(rows), self.store.statement.dimension))
        radii = np.empty(len(rows))
        hashes = bytearray()
        previous, count = self.head.hash, len(self)
        for position, row in enumerate(rows):
            if finding := stores.breach(previous, count + 1 + position, row):
                raise self._fail(finding)
            try:
                header, points[position] = decode_parts(row.payload, self.store.statement)
            except (ValueError, KeyError, TypeError) as error:
                raise self._fail(f"record {row.id} can't be read ({error})") from None
            radii[position] = header.radius  # every region lies in the ℓ2 ball of its largest semi-axis
            hashes += row.hash
            previous = row.hash
        self._index.add(points, radii)
        self._hashes += hashes

    def _hash_of(self, number: int) -> bytes | None:
        if number == 0:
            return self._start.hash
        return bytes(self._hashes[(number - 1) * stores.HASH_BYTES : number * stores.HASH_BYTES]) or None

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _fail(self, finding: str) -> stores.IncompleteMemoryError:
        self._broken = stores.IncompleteMemoryError(self.store.name, finding)
        return self._broken
