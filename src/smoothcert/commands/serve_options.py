"""Options that bound what callers of a server may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from smoothcert.service.limits import Limits

_LIMITS = Group("Limits (whatever is beyond them is refused)", sort_key=8)


@Parameter(name="*")
@dataclass(frozen=True)
class LimitOptions:
    """What one request, and one caller, may ask for."""

    deadline: Annotated[
        float,
        Parameter(
            group=_LIMITS,
            help="Seconds after which a request that doesn't say is answered with the radius reached so far.",
        ),
    ] = 10.0
    max_deadline: Annotated[float, Parameter(group=_LIMITS, help="Seconds that a request may ask for.")] = (
        300.0
    )
    max_body: Annotated[int, Parameter(group=_LIMITS, help="Bytes of a request.")] = 8 << 20
    max_inputs: Annotated[int, Parameter(group=_LIMITS, help="Inputs of a request.")] = 64
    max_queue: Annotated[
        int, Parameter(group=_LIMITS, help="Inputs that may wait, of all callers together; more get 429.")
    ] = 1024
    max_waiting: Annotated[
        int, Parameter(group=_LIMITS, help="Inputs that may wait, of one caller; more get 429.")
    ] = 256
    max_requests: Annotated[int, Parameter(group=_LIMITS, help="Requests of one caller a minute.")] = 600
    max_votes: Annotated[int, Parameter(group=_LIMITS, help="Votes for one caller a minute.")] = 100_000_000
    max_connections: Annotated[int, Parameter(group=_LIMITS, help="Connections at once.")] = 512
    keep: Annotated[
        int, Parameter(group=_LIMITS, help="Inputs whose votes are kept, to go on with when asked again.")
    ] = 65_536

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
