"""What one request, and one caller, may ask for."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from smoothcert.errors import check_count, check_positive
from smoothcert.service.asks import QueueFullError, QuotaError
from smoothcert.service.waiting_room import EngineLimits

_MOST_CALLERS = 10_000  # whose quotas are remembered


@dataclass(frozen=True)
class Limits:
    """Bounds of requests; everything beyond them is refused before it costs anything."""

    body: int = 8 << 20
    """Bytes of a request's body."""
    bodies: int = 64 << 20
    """Bytes of all bodies that are being read and parsed."""
    body_seconds: float = 20.0
    """Time that a request may take to arrive."""
    inputs: int = 64
    """Inputs of a request."""
    pixels: int = 1 << 24
    """Of a picture, before it is decoded."""
    deadline: float = 10.0
    """Seconds after which a request that doesn't say is answered with the radius reached so far."""
    longest: float = 300.0
    """Seconds that a request may ask for."""
    requests_per_minute: int = 600
    """Of one caller."""
    votes_per_minute: int = 100_000_000
    """Cast for one caller."""
    connections: int = 512
    """Open at once."""
    engine: EngineLimits = EngineLimits()  # noqa: RUF009 - frozen
    """What waits."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type == "int":
                check_count(each.name, getattr(self, each.name))
            elif each.type == "float":
                check_positive(each.name, getattr(self, each.name))


class Held:
    """Bytes that requests hold at the moment: so many of all callers together, a quarter of them of one."""

    def __init__(self, most: int, largest: int) -> None:
        self._most, self._of_one = max(most, largest), max(most // 4, largest)
        self._by: Counter[str] = Counter()

    @property
    def amount(self) -> int:
        """Of all callers."""
        return self._by.total()

    @contextmanager
    def taking(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Takes so much more with each call; on leaving all of it is given back. QueueFullError beyond the most."""
        mine = 0

        def take(amount: int) -> None:
            nonlocal mine
            if self.amount + amount > self._most or self._by[caller] + amount > self._of_one:
                raise QueueFullError("too many bytes of requests are being read at the moment", 1)
            self._by[caller] += amount
            mine += amount

        try:
            yield take
        finally:
            self._by[caller] -= mine
            if not self._by[caller]:
                del self._by[caller]


@dataclass
class _Bucket:
    left: float
    filled: float


class Quota:
    """So much a minute for each caller, as a bucket that fills up steadily; an idle one is full.

    It may be overdrawn by what was under way, and is then refused until it has filled up again.
    """

    def __init__(self, per_minute: int, what: str) -> None:
        self._most, self._what = float(per_minute), what
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def check(self, caller: str) -> None:
        """QuotaError, with the time to wait, where a caller has nothing left."""
        left = self._filled(caller).left
        if left < 1:
            wait = max(1, math.ceil((1 - left) * 60 / self._most))
            raise QuotaError(f"more than {self._most:.0f} {self._what} a minute", wait)

    def spend(self, caller: str, amount: int) -> None:
        """Take so much out of a caller's bucket."""
        self._filled(caller).left -= amount

    def _filled(self, caller: str) -> _Bucket:
        now = time.monotonic()
        bucket = self._buckets.pop(caller, None) or _Bucket(self._most, now)
        bucket.left = min(self._most, bucket.left + (now - bucket.filled) * self._most / 60)
        bucket.filled = now
        self._buckets[caller] = bucket
        while len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket
