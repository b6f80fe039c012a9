"""What one request, one caller and all callers together may ask for, and how the rest is refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields

from smoothcert.errors import InvalidValueError, SmoothcertError, check_count, check_positive

_MOST_CALLERS = 10_000  # whose quotas are remembered


class RefusedError(SmoothcertError):
    """A question that is not taken now; ``retry_after`` seconds from now it may be."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFullError(RefusedError):
    """Too many inputs are waiting already."""


class QuotaError(RefusedError):
    """A caller has used up what it may ask for at the moment."""


class ClosedError(RefusedError):
    """The server is being shut down."""


class _Checked:
    """Counts are positive whole numbers, times are positive."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            if each.type == "int":
                check_count(each.name, getattr(self, each.name), least=0 if each.name == "kept" else 1)
            elif each.type == "float":
                check_positive(each.name, getattr(self, each.name))


@dataclass(frozen=True)
class EngineLimits(_Checked):
    """What is held at once. Everything a caller can make grow is bounded by one of these."""

    queue: int = 1024
    """Inputs that may wait, of all callers together."""
    per_caller: int = 256
    """Inputs that one caller may have waiting."""
    kept: int = 65_536
    """Points whose votes are kept after their last question."""


@dataclass(frozen=True)
class Limits(_Checked):
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
    picture_seconds: float = 5.0
    """Time that decoding a picture may take."""
    reading_per_minute: int = 60_000
    """Milliseconds of parsing bodies and decoding pictures, of one caller."""
    deadline: float = 10.0
    """Seconds after which a request that doesn't say is answered with the radius reached so far."""
    longest: float = 300.0
    """Seconds that a request may ask for."""
    requests_per_minute: int = 600
    """Of one caller."""
    votes_per_minute: int = 100_000_000
    """Cast for one caller."""
    connections: int = 512
    """Open at once; a quarter of them may be one address's requests under way."""
    engine: EngineLimits = EngineLimits()
    """What waits."""


class FairSlots:
    """So many at once, one of each caller; of callers who wait, the one with the most left of its quota is next.

    Callers with as much left alternate. For one event loop.
    """

    def __init__(self, slots: int, left: Callable[[str], float] = lambda _: 0.0) -> None:
        self._free, self._busy, self._left = slots, set[str](), left
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def taken(self, caller: str) -> AsyncIterator[None]:
        """Wait for this caller's turn, and keep a slot until the block ends."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave(caller)
            raise
        try:
            yield
        finally:
            self._leave(caller)

    def _leave(self, caller: str) -> None:
        self._busy.discard(caller)
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        waiting = [caller for caller in self._waiting if caller not in self._busy]
        for caller in sorted(waiting, key=self._left, reverse=True):
            if not self._free:
                return
            turns = self._waiting.pop(caller)
            while turns and turns[0].cancelled():
                turns.popleft()
            if turns:
                turns.popleft().set_result(None)
                self._busy.add(caller)
                self._free -= 1
            if turns:
                self._waiting[caller] = turns  # behind the others


class HeldBytes:
    """Bytes that requests hold at the moment: so many of all callers together, a quarter of them of one."""

    def __init__(self, most: int, largest: int) -> None:
        self._most, self._of_one = max(most, largest), max(most // 4, largest)
        self._by_caller: Counter[str] = Counter()

    @property
    def amount(self) -> int:
        """Of all callers."""
        return self._by_caller.total()

    @contextmanager
    def taking(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Takes so much more with each call; on leaving all of it is given back. QueueFullError beyond the most."""
        taken = 0

        def take(amount: int) -> None:
            nonlocal taken
            if self.amount + amount > self._most or self._by_caller[caller] + amount > self._of_one:
                raise QueueFullError("too many bytes of requests are being read at the moment", 1)
            self._by_caller[caller] += amount
            taken += amount

        try:
            yield take
        finally:
            self._by_caller[caller] -= taken
            if not self._by_caller[caller]:
                del self._by_caller[caller]


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
        left = self.left(caller)
        if left < 1:
            wait = max(1, math.ceil((1 - left) * 60 / self._most))
            raise QuotaError(f"more than {self._most:.0f} {self._what} a minute", wait)

    def left(self, caller: str) -> float:
        """What a caller may still spend; below zero where it has overdrawn."""
        return self._filled(caller).left

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


@dataclass(eq=False)
class Reservation:
    """Places in the queue that are kept for a caller's inputs."""

    caller: str
    inputs: int


class WaitingInputs:
    """Counts the inputs that wait, by caller. Not thread-safe: the engine's lock is held."""

    def __init__(self, limits: EngineLimits, retry_after: Callable[[], float]) -> None:
        self._limits, self._retry_after = limits, retry_after
        self.by_caller: Counter[str] = Counter()

    def check(self, caller: str, more: int) -> None:
        """Refuse more inputs of a caller's than there are places."""
        limits, all_, of_caller = self._limits, self.by_caller.total(), self.by_caller[caller]
        most = min(limits.queue, limits.per_caller)
        if more > most:
            raise InvalidValueError(
                f"{more} inputs at once are more than the {most} that may wait: ask about fewer at a time"
            )
        if all_ + more > limits.queue:
            raise QueueFullError(f"{all_} inputs are waiting of {limits.queue} that may", self._retry_after())
        if of_caller + more > limits.per_caller:
            raise QueueFullError(
                f"{of_caller} of your inputs are waiting of {limits.per_caller} that may", self._retry_after()
            )

    def reserve(self, caller: str, inputs: int) -> Reservation:
        """Keep places for so many inputs, which count as waiting."""
        self.check(caller, inputs)
        self.by_caller[caller] += inputs
        return Reservation(caller, inputs)

    def release(self, reservation: Reservation) -> None:
        """Give back what is kept and was not used."""
        self.leave(reservation.caller, reservation.inputs)
        reservation.inputs = 0

    def leave(self, caller: str, inputs: int = 1) -> None:
        """So many inputs wait no more."""
        self.by_caller[caller] -= inputs
        if self.by_caller[caller] <= 0:
            del self.by_caller[caller]
