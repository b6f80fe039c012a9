"""Room for the inputs that callers have waiting: bounded for all together, and for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.service.asks import QueueFullError


@dataclass(frozen=True)
class EngineLimits:
    """What is held at once. Everything a caller can make grow is bounded by one of these."""

    queue: int = 1024
    """Inputs that may wait, of all callers together."""
    per_caller: int = 256
    """Inputs that one caller may have waiting."""
    kept: int = 65_536
    """Points whose votes are kept after their last question."""

    def __post_init__(self) -> None:
        check_count("queue", self.queue)
        check_count("per_caller", self.per_caller)
        check_count("kept", self.kept, least=0)


@dataclass(eq=False)
class Reservation:
    """Room that is kept for a caller's inputs."""

    caller: str
    inputs: int


class WaitingRoom:
    """Counts the inputs that wait, by caller. Not safe for threads: the engine's lock is held."""

    def __init__(self, limits: EngineLimits, retry_after: Callable[[], float]) -> None:
        self._limits, self._retry_after = limits, retry_after
        self.held: Counter[str] = Counter()

    def check(self, caller: str, more: int) -> None:
        """Refuse more inputs of a caller's than there is room for."""
        limits, held = self._limits, self.held.total()
        most = min(limits.queue, limits.per_caller)
        if more > most:
            raise InvalidValueError(
                f"{more} inputs at once are more than the {most} that may wait: ask about fewer at a time"
            )
        if held + more > limits.queue:
            raise QueueFullError(f"{held} inputs are waiting of {limits.queue} that may", self._retry_after())
        if self.held[caller] + more > limits.per_caller:
            raise QueueFullError(
                f"{self.held[caller]} of your inputs are waiting of {limits.per_caller} that may",
                self._retry_after(),
            )

    def reserve(self, caller: str, inputs: int) -> Reservation:
        """Keep room for so many inputs, which count as waiting."""
        self.check(caller, inputs)
        self.held[caller] += inputs
        return Reservation(caller, inputs)

    def release(self, reservation: Reservation) -> None:
        """Give back what is kept and wasn't used."""
        self.leave(reservation.caller, reservation.inputs)
        reservation.inputs = 0

    def enter(self, caller: str) -> None:
        """One input more."""
        self.held[caller] += 1

    def leave(self, caller: str, inputs: int = 1) -> None:
        """So many less."""
        self.held[caller] -= inputs
        if self.held[caller] <= 0:
            del self.held[caller]
