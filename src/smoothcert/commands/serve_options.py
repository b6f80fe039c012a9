"""Options that bound what callers of a server may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from smoothcert.service.limits import Limits

_LIMITS = Group("Limits (whatever is beyond them is refused)", sort_key=8)


@Parameter(name="*", group=_LIMITS)
@dataclass(frozen=True)
class LimitOptions:
    """What one request, and one caller, may ask for."""

    deadline: float = 10.0
    """Seconds after which a request that doesn't say is answered with the radius reached so far."""
    max_deadline: float = 300.0
    """Seconds that a request may ask for."""
    max_body: int = 8 << 20
    """Bytes of a request."""
    max_inputs: int = 64
    """Inputs of a request."""
    max_queue: int = 1024
    """Inputs that may wait, of all callers together; more get 429."""
    max_waiting: int = 256
    """Inputs that may wait, of one caller; more get 429."""
    max_requests: int = 600
    """Requests of one caller a minute."""
    max_votes: int = 100_000_000
    """Votes for one caller a minute."""
    max_connections: int = 512
    """Connections at once."""
    keep: int = 65_536
    """Inputs whose votes are kept, to go on with when asked again."""

    def limits(self) -> Limits:
        """As the service takes them."""
        from smoothcert.service.limits import Limits
        from smoothcert.service.waiting_room import EngineLimits

        return Limits(
            body=self.max_body,
            inputs=self.max_inputs,
            deadline=min(self.deadline, self.max_deadline),
            longest=self.max_deadline,
            requests_per_minute=self.max_requests,
            votes_per_minute=self.max_votes,
            connections=self.max_connections,
            engine=EngineLimits(self.max_queue, min(self.max_waiting, self.max_queue), self.keep),
        )
