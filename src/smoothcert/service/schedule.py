"""Whose votes are cast next: fair between callers, however many inputs each of them has."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from smoothcert.service.voting import Lease, Voting


@dataclass(eq=False)
class Turn:
    """A caller's place in the queue: what it waits for, and how many votes it was given."""

    served: float = 0.0
    waiting: deque[Voting] = field(default_factory=deque)


Grant = Callable[[Voting], Lease | None]
"""The next lease of a voting; None if it needs none at the moment."""


class Schedule:
    """Start-time fair queuing: the next lease goes to the caller that was given the fewest votes.

    A caller that comes, or comes back, starts level with the least-served of those that wait: neither may it save up
    turns while it is away, nor does it pay for what it was given when no other was waiting. Among a caller's own
    inputs turns go round. So a caller with a hundred inputs slows one with a single input down no more than a caller
    with one would.
    """

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def __len__(self) -> int:
        """Callers that wait."""
        return len(self._turns)

    def join(self, caller: str, voting: Voting) -> None:
        """Queue a voting for a caller; twice is once."""
        turn = self._turns.get(caller)
        if turn is None:
            turn = self._turns[caller] = Turn(min((one.served for one in self._turns.values()), default=0.0))
        if voting not in turn.waiting:
            turn.waiting.append(voting)

    def leave(self, caller: str, voting: Voting) -> None:
        """Take a voting out of a caller's queue; the caller is forgotten with its last one."""
        turn = self._turns.get(caller)
        if turn is None or voting not in turn.waiting:
            return
        turn.waiting.remove(voting)
        if not turn.waiting:
            del self._turns[caller]

    def next(self, grant: Grant) -> tuple[str, Voting, Lease] | None:
        """The next lease and whose it is; None if none is needed now."""
        for caller, turn in sorted(self._turns.items(), key=lambda item: item[1].served):
            for _ in range(len(turn.waiting)):
                voting = turn.waiting[0]
                turn.waiting.rotate(-1)
                lease = grant(voting)
                if lease is not None:
                    turn.served += lease.votes
                    return caller, voting, lease
        return None
