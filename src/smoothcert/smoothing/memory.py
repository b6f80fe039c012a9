"""RegionMemory: the memory-enhanced classifier, for which certificates with a σ of their own per input are sound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import CertifiedRegion
from smoothcert.smoothing.inputs import as_numpy
from smoothcert.smoothing.memory_ledger import KINDS, Ledger, StoredAnswer
from smoothcert.smoothing.stores.base import Head, MemoryStatement, Store, next_row, open_store
from smoothcert.tally import ABSTAIN

__all__ = ["MemoryAnswer", "MemoryStatement", "RegionMemory"]

Source = Literal["memory", "certified", "shrunk", "abstained"]

PROMISE = (
    "stateful: every question asked of this memory after this answer, at any input inside the region, is answered with "
    "this class, as long as the memory is complete; other orders of questions may give other answers"
)
NO_PROMISE = "stateful: nothing is promised about an input that was abstained from"
POINT_PROMISE = "stateful: the class is promised for this very input only, on a stored region's edge"


class Certified(Protocol):
    """What a certificate must say; :class:`smoothcert.smoothing.answers.Certification` does."""

    @property
    def predicted(self) -> int:
        """The class, or ABSTAIN."""

    @property
    def region(self) -> CertifiedRegion | None:
        """The region around the input, None when abstained."""


@dataclass(frozen=True, eq=False)
class MemoryAnswer:
    """What the memory-enhanced classifier answers. ``record`` is the stored record that vouches for it.

    ``region`` is what may be claimed: every float64 input inside it will be answered ``predicted``. ``certified`` is
    the certificate that was available: it disagrees with the answer where a stored region overruled it.
    """

    predicted: int
    region: CertifiedRegion | None
    source: Source
    record: int | None
    certified: Certified | None = None
    stateful: Literal[True] = True

    @property
    def abstained(self) -> bool:
        """Whether there is no answer."""
        return self.predicted == ABSTAIN

    @property
    def radius(self) -> float:
        """Radius of the region, or of the largest ball in it; 0 without one."""
        return 0.0 if self.region is None else self.region.inscribed_radius

    @property
    def volume_radius(self) -> float:
        """Radius of the ball of the region's volume, 0 without one."""
        return 0.0 if self.region is None else self.region.volume_radius

    @property
    def promise(self) -> str:
        """What the answer promises."""
        if self.abstained:
            return NO_PROMISE
        return POINT_PROMISE if self.region is None else PROMISE


LARGEST = 1e100
"""Beyond it squares might overflow."""
SMALLEST_RADIUS = 1e-100
"""Below it squares might underflow, and a computed distance no longer be a bound."""

_EXACT_INTEGERS = 2**53


def as_point(x: NDArray[Any], statement: MemoryStatement) -> NDArray[np.float64]:
    """The same numbers in float64; refuses what has another shape, isn't finite or wouldn't stay the same."""
    if x.shape != statement.input_shape:
        raise InvalidValueError(
            f"this memory is about inputs of {statement.input_shape}, got shape {x.shape}"
        )
    if x.dtype.kind not in "buif" or x.dtype.itemsize > 8:
        raise InvalidValueError(f"an input must be of integers or of floats up to 64 bits, got {x.dtype}")
    if x.dtype.kind in "ui" and x.size and max(int(x.max()), -int(x.min())) > _EXACT_INTEGERS:
        raise InvalidValueError(f"integers beyond 2^53 = {_EXACT_INTEGERS} can't be told apart in float64")
    point = x.astype(np.float64)
    if not np.isfinite(point).all():
        raise InvalidValueError("an input must be finite: it has a NaN or an infinity; fix it and ask again")
    largest = float(np.abs(point).max())
    if largest > LARGEST:
        raise InvalidValueError(f"coordinates may be up to {LARGEST:g}, got {largest:g}; rescale them")
    return point


_PAGE = 256
_CERTIFIED = "certified_radius"


class RegionMemory:
    """Answers with stored regions where it can, else with a certificate cut to fit them (Alfarra et al., Algorithm 3).

    Kept at all times: stored regions of different classes are disjoint. An input inside one is answered its class,
    without sampling; that answer isn't stored, because its region lies in one of the same class that is: every
    question inside it is answered already, every later region avoids it already. An input outside all is certified
    and its region cut, keeping its shape, until it meets none of another class; what is left is stored, durably, and
    then answered. So is a certificate at hand (:meth:`offer`) inside a region of its own class, if it has more volume.
    Balls and stretched regions of one norm may stand side by side.

    Certifying takes seconds and happens outside the transaction. The check is repeated inside it for whatever was
    stored meanwhile, so that no answer slips in between check and store. Threads may share a memory; processes open
    the same store.
    """

    def __init__(self, store: Store, known: Head | None = None) -> None:
        """Read and verify the whole store; ``known``, a head noted earlier, must be part of it."""
        self._store = store
        self._lock = threading.RLock()
        self._ledger = Ledger(store, known)

    @classmethod
    def open(cls, address: str | Path, statement: MemoryStatement, known: Head | None = None) -> Self:
        """Open or make the memory at an SQLite path or ``postgresql://…/database#schema``."""
        store = open_store(address, statement, known)
        try:
            return cls(store, known)
        except BaseException:
            store.close()
            raise

    @property
    def statement(self) -> MemoryStatement:
        """What the memory is about."""
        return self._store.statement

    @property
    def store(self) -> Store:
        """Where it is kept."""
        return self._store

    @property
    def head(self) -> Head:
        """Names the memory as it is now; worth noting elsewhere."""
        with self._lock:
            self._ledger.refresh()
            return self._ledger.head

    @property
    def nbytes(self) -> int:
        """Main memory held for looking up."""
        return self._ledger.nbytes

    def __len__(self) -> int:
        with self._lock:
            self._ledger.refresh()
            return len(self._ledger)

    def answers(self) -> Iterator[tuple[int, StoredAnswer]]:
        """Every stored answer with its number, in order of storing."""
        with self._lock:
            self._ledger.refresh()
            total = len(self._ledger)
        for start in range(0, total, _PAGE):
            with self._lock:
                page = self._ledger.read(range(start + 1, min(total, start + _PAGE) + 1))
            yield from page

    def stored_answer(self, record: int) -> StoredAnswer:
        """The record an answer refers to: its whole region and the facts kept beside it."""
        with self._lock:
            self._ledger.refresh()
            return self._ledger.read([record])[0][1]

    def look_up(self, x: ArrayLike, among: int | None = None) -> MemoryAnswer | None:
        """The answer that stored regions, or the first ``among`` of them, give; None if ``x`` lies in none."""
        point = as_point(as_numpy(x), self.statement)
        with self._lock:
            self._ledger.refresh()
            return self._recall(point, None, 0, among)[0]

    def stored_for(self, record: int, x: ArrayLike, certified: Certified) -> MemoryAnswer | None:
        """The answer that storing ``record`` gave, if it was stored for ``x`` and this certificate."""
        point = as_point(as_numpy(x), self.statement)
        stored, offered = self.stored_answer(record), self._checked(certified, point)
        if offered is None or not np.array_equal(stored.region.center, point):
            return None
        if (stored.predicted, stored.facts.get(_CERTIFIED)) != (certified.predicted, _size(certified)):
            return None  # the same input came twice, with votes of its own each time
        left, whole = stored.region.axes, offered.axes
        if not np.allclose(left * np.max(whole), whole * np.max(left), rtol=1e-9, atol=0.0):
            return None  # what is left of a cut region has its semi-axes in the same proportions
        return self._stored(record, stored.predicted, stored.region, offered)

    def answer(
        self,
        x: ArrayLike,
        certify: Callable[[NDArray[Any]], Certified],
        facts: Callable[[Certified], Mapping[str, Any]] | None = None,
    ) -> MemoryAnswer:
        """The classifier's answer at ``x``; ``certify(x)`` is called only if no stored region holds ``x``.

        ``facts`` may name what to keep beside a stored answer (its α, its votes), as values JSON can hold; its σ, if
        it states one, is kept anyway. When an answer comes back it is on disk; when an error comes instead, no answer
        was given, and asking again is safe.
        """
        array = as_numpy(x)
        point = as_point(array, self.statement)  # before certify, which may write to what it is given
        return self.look_up(point) or self.offer(point, certify(array), facts)

    def offer(
        self,
        x: ArrayLike,
        certified: Certified,
        facts: Callable[[Certified], Mapping[str, Any]] | None = None,
    ) -> MemoryAnswer:
        """The classifier's answer at ``x`` with a certificate at hand, inside a stored region or not.

        A stored region of another class overrules the certificate. Inside one of the same class the claim of larger
        volume is made: what that region leaves around ``x``, or the certificate, cut and stored like any other.
        """
        point = as_point(as_numpy(x), self.statement)
        region = self._checked(certified, point)
        with self._lock:
            self._ledger.refresh()
            seen = len(self._ledger)
            found, left = self._recall(point, None if region is None else (certified.predicted, region), 0)
            if left is not None:
                assert region is not None
                found = self._store_rest(point, certified, region, (found, left), seen, facts)
        if found is not None:
            return replace(found, certified=certified)
        return MemoryAnswer(ABSTAIN, None, "abstained", None, certified)

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _store_rest(
        self,
        point: NDArray[np.float64],
        certified: Certified,
        offered: CertifiedRegion,
        settled: tuple[MemoryAnswer | None, CertifiedRegion],
        seen: int,
        facts: Callable[[Certified], Mapping[str, Any]] | None,
    ) -> MemoryAnswer | None:
        """Check what is left of an offer against the records after the first ``seen``, store, then answer.

        ``settled`` is what those first records answer and leave.
        """
        kept: dict[str, Any] = {_CERTIFIED: _size(certified)}
        if (sigma := getattr(certified, "sigma", None)) is not None:
            kept["sigma"] = float(sigma)  # without it the record's claim about the model can't be checked
        kept |= facts(certified) if facts else {}
        with self._store.exclusive():
            self._ledger.refresh_inside()
            earlier, region = settled
            later, left = self._recall(point, (certified.predicted, region), seen)
            claims = [answer for answer in (earlier, later) if answer is not None]
            found = max(claims, key=lambda answer: answer.volume_radius, default=None)
            if left is None or not _says_more(left, found):
                return found
            row = next_row(self._ledger.head, StoredAnswer(certified.predicted, left, kept).encode())
            self._store.append(row)
        return self._stored(row.id, certified.predicted, left, offered)

    @staticmethod
    def _stored(record: int, predicted: int, left: CertifiedRegion, offered: CertifiedRegion) -> MemoryAnswer:
        source: Source = "certified" if np.array_equal(left.axes, offered.axes) else "shrunk"
        return MemoryAnswer(predicted, left.core(), source, record)

    def _recall(
        self,
        point: NDArray[np.float64],
        offer: tuple[int, CertifiedRegion] | None,
        seen: int,
        last: int | None = None,
    ) -> tuple[MemoryAnswer | None, CertifiedRegion | None]:
        """The answer of the records after ``seen`` if one holds ``point``, and what they leave of the offer.

        Of an offer that says no more than that answer, or has another class, nothing is left.
        """
        best: tuple[int, StoredAnswer] | None = None
        claim: CertifiedRegion | None = None
        left = None if offer is None else offer[1]
        for number, stored in self._ledger.near(point, 0.0 if offer is None else offer[1].reach, seen):
            if last is not None and number > last:
                continue
            if stored.region.contains(point):
                if best is not None and best[1].predicted != stored.predicted:
                    raise self._ledger.contradiction(best[0], number)
                inside = stored.region.core().largest_inside(point)
                if best is None or (
                    inside is not None and (claim is None or inside.volume_radius > claim.volume_radius)
                ):
                    best, claim = (number, stored), inside
            elif offer is not None and left is not None and stored.predicted != offer[0]:
                left = _computable(stored.region.outside(left))
        if best is None:
            return None, left
        found = MemoryAnswer(best[1].predicted, claim, "memory", best[0])
        agrees = offer is not None and offer[0] == found.predicted
        return found, left if agrees and left is not None and _says_more(left, found) else None

    def _checked(self, certified: Certified, point: NDArray[np.float64]) -> CertifiedRegion | None:
        """The certified region around x, None when abstained; refuses one of another norm, or that doesn't hold x."""
        region = certified.region
        if (certified.predicted == ABSTAIN) != (region is None) or certified.predicted < ABSTAIN:
            raise InvalidValueError(
                f"a certificate has a class and a region or neither, got class {certified.predicted} and {region}"
            )
        if region is None:
            return None
        if getattr(certified, "held", None) is not None:
            raise InvalidValueError(
                "a certificate that holds coordinates is about inputs with the same values there, and a memory would "
                "answer others by it as well: certify without holding"
            )
        if getattr(region, "kind", None) not in KINDS[self.statement.norm]:
            raise InvalidValueError(
                f"this memory holds {self.statement.norm} balls and the like "
                f"({', '.join(KINDS[self.statement.norm])}), got a certificate with {type(region).__name__}"
            )
        if not np.array_equal(region.center, point):
            # A certificate is about the grid point next to its input: what it leaves around the input itself is kept.
            same = region.center.shape == point.shape
            if not same or not (region.contains(point) or _shifted(certified, region, point)):
                raise InvalidValueError("the certificate's region isn't around the input asked about")
            region = region.core().largest_inside(point) if region.contains(point) else None
            if region is None:
                return None
        if region.reach > LARGEST:
            raise InvalidValueError(f"radii may be up to {LARGEST:g}, got {region.reach:g}")
        return _computable(region)


def _shifted(certified: Certified, region: CertifiedRegion, point: NDArray[np.float64]) -> bool:
    """Whether the input is as far from the region's center as its certificate says that it was rounded."""
    moved = (point - region.center).ravel()
    return float(np.linalg.norm(moved, region.order)) <= float(getattr(certified, "shift", 0.0)) * (1 + 1e-6)


def _size(certified: Certified) -> str:
    """The certificate's radius before anything was cut, to the last bit."""
    assert certified.region is not None
    return certified.region.inscribed_radius.hex()


def _says_more(left: CertifiedRegion, found: MemoryAnswer | None) -> bool:
    """Whether a region is worth a record beside an answer; one of the same size, but for rounding, isn't."""
    return found is None or left.core().volume_radius > found.volume_radius * (1 + 1e-9)


def _computable(region: CertifiedRegion | None) -> CertifiedRegion | None:
    """The region, None if it is too small to compute with."""
    return region if region is not None and region.inscribed_radius >= SMALLEST_RADIUS else None
