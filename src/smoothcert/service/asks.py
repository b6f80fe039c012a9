"""Asks: what one caller wants to know of one input, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from smoothcert.errors import SmoothcertError
from smoothcert.service.voting import Standing, Voting
from smoothcert.smoothing import Certification
from smoothcert.stopping import StopRule, VotingState

Ending = Literal["votes", "rule", "deadline", "left", "shutdown", "failed"]
"""Why an ask ended: all its votes were cast, its rule was satisfied or hopeless, its time was up, its caller had left,
the server was shut down, or the model couldn't vote."""


class RefusedError(SmoothcertError):
    """An ask that isn't taken; ``retry_after`` seconds from now it may be."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFullError(RefusedError):
    """Too many inputs are waiting already."""


class QuotaError(RefusedError):
    """A caller has used up what it may ask for at the moment."""


class ClosedError(RefusedError):
    """The server is being shut down."""


@dataclass(eq=False)
class Ask:
    """One caller's question about one input: at most ``votes`` estimation votes, or until ``rule`` has a reason.

    ``on_change`` is called by the engine's thread whenever the standing changes and when the ask ends: it must be quick
    and must not call the engine.
    """

    caller: str
    x: NDArray[Any]
    voting: Voting
    votes: int
    rule: StopRule | None = None
    on_change: Callable[[], None] | None = None
    ending: Ending | None = None
    reason: str | None = None
    error: SmoothcertError | None = None
    standing: Standing = field(init=False)
    certification: Certification | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.standing = self.voting.standing

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.ending is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, in a thread; whether it has."""
        return self._ended.wait(timeout)

    def look(self) -> bool:
        """Take in where the voting stands; whether that ends the ask."""
        self.standing = standing = self.voting.standing
        if standing.chosen is None:
            return False
        if standing.votes and self.rule is not None:
            state = VotingState(
                standing.chosen, None, self.votes, self.voting.judged, standing.radius, self.voting.radius_of
            )
            self.reason = self.rule.reason(state)
            if self.reason is not None:
                self.end("rule")
                return True
        if self.voting.estimation.n >= self.votes:
            self.end("votes")
            return True
        return False

    def end(self, ending: Ending, error: SmoothcertError | None = None) -> None:
        """End it with what is certified so far."""
        if self.done:
            return
        self.standing = self.voting.standing
        if error is None and ending != "left":
            self.certification = self.voting.certification(self.x)
        self.error = error
        self.ending = ending
        self._ended.set()
        self.changed()

    def changed(self) -> None:
        """Wake what waits for it."""
        if self.on_change is not None:
            self.on_change()
