"""Ledger: a process's verified view of a store, kept up to date row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from smoothcert.region_memory.chain import HASH_BYTES, Head, Row, breach, genesis
from smoothcert.region_memory.errors import IncompleteMemoryError
from smoothcert.region_memory.records import StoredAnswer, decode, decode_parts
from smoothcert.region_memory.sketch import SketchIndex
from smoothcert.region_memory.stores import Store

_BATCH = 1024
_FETCHED = 256


class Ledger:
    """Holds sketches and hashes, never the inputs: those stay in the store and are verified whenever they are read.

    Once anything is found to be missing or changed, every later call fails with the same error: a memory that is
    wrong about one record must not answer about others.
    """

    def __init__(self, store: Store, known: Head | None = None) -> None:
        self.store = store
        self._known = known
        self._start = genesis(store.statement)
        self._hashes = bytearray()
        self._index = SketchIndex(store.statement.input_shape)
        self._broken: IncompleteMemoryError | None = None
        self.refresh()
        with store.exclusive():  # no process is between writing a row and moving the head
            self.refresh_inside()
        if known is not None and self._hash_of(known.count) != known.hash:
            raise self._fail(
                f"record {known.count} is not the one noted as known ({known}): it was lost or replaced"
            )

    def __len__(self) -> int:
        return len(self._index)

    @property
    def head(self) -> Head:
        """The last record that was verified."""
        return Head(len(self), self._hash_of(len(self)) or b"")

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
                raise self._fail(
                    f"{len(self)} records were there before, now the head is another one, of {head.count}"
                )
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

    def contradiction(self, first: int, second: int) -> IncompleteMemoryError:
        """Two records of different classes that claim one point: the memory is unsound already."""
        return self._fail(f"records {first} and {second} give different classes to one input")

    def _decoded(self, row: Row) -> tuple[int, StoredAnswer]:
        previous = self._hash_of(row.id - 1)
        if row.hash != self._hash_of(row.id) or previous is None or breach(previous, row.id, row):
            raise self._fail(f"record {row.id} is not what it was when it was read first")
        return row.id, decode(row.payload, self.store.statement)

    def _take(self, rows: list[Row]) -> None:
        points = np.empty((len(rows), self.store.statement.dimension))
        radii = np.empty(len(rows))
        hashes = bytearray()
        previous, count = self.head.hash, len(self)
        for position, row in enumerate(rows):
            if finding := breach(previous, count + 1 + position, row):
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
        return bytes(self._hashes[(number - 1) * HASH_BYTES : number * HASH_BYTES]) or None

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _fail(self, finding: str) -> IncompleteMemoryError:
        self._broken = IncompleteMemoryError(self.store.name, finding)
        return self._broken
