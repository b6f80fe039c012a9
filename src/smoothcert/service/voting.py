"""The votes on one point, the questions that wait for them, and whose votes are cast next."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from numpy.typing import NDArray

from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import SmoothcertError
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.stopping.base import StopRule
from smoothcert.smoothing.stopping.forecasts import VotingState
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally

Ending = Literal["votes", "rule", "deadline", "left", "shutdown", "failed"]
"""Why an ask ended: all its votes were cast, its rule was satisfied or hopeless, its time was up, its caller had left,
the server was shut down, or the model could not vote."""


@dataclass(frozen=True)
class VoteTask:
    """Votes ``start`` to ``stop`` of a phase, handed to the workers."""

    phase: Phase
    start: int
    stop: int

    @property
    def votes(self) -> int:
        """How many."""
        return self.stop - self.start


@dataclass(frozen=True)
class Standing:
    """Where a point stands after ``votes`` estimation votes: the radius holds if voting stops now, for any reason.

    ``chosen`` is None while the selection votes are being cast.
    """

    votes: int
    chosen: int | None
    radius: float
    bounds: ClassBounds
    counts: tuple[int, ...]

    @property
    def predicted(self) -> int:
        """The certified class, or ABSTAIN."""
        return ABSTAIN if self.chosen is None or not self.radius > 0 else self.chosen

    @property
    def runner_up(self) -> int | None:
        """The class with the most votes beside the chosen one; None before there is a vote for another."""
        others = [(count, -c) for c, count in enumerate(self.counts) if c != self.chosen and count]
        return -max(others)[1] if others and self.chosen is not None else None


Kept = tuple[Tally, Tally]
"""All that is kept of a point: its votes from the first on, those that chose the class and those that bound it."""


@dataclass(eq=False)
class Voting:
    """The votes on one point under a plan whose bound is anytime-valid and whose numerics are settled.

    Tasks may come back in any order; only votes without a gap from the first on count. The bound is evaluated where
    it may be: everywhere, or at its looks, which tasks end at.
    """

    index: int
    x: NDArray[Any]
    plan: CertifyPlan
    classes: int
    selection: Tally | None = None
    estimation: Tally = field(init=False)
    issued: int = 0
    out: int = 0
    """Tasks that have not come back."""
    standing: Standing = field(init=False)
    seconds: float = 0.0
    judged: Tally = field(init=False)
    """The votes that the standing is about."""
    _selecting: bool = False
    _ahead: list[tuple[int, Tally]] = field(default_factory=list)

    def __post_init__(self) -> None:
        nothing = (0,) * self.classes
        stream = Stream(self.plan.known_seed, self.index, Phase.ESTIMATION)
        self.estimation = self.judged = Tally(stream, 0, 0, nothing)
        self.standing = Standing(0, None, 0.0, ClassBounds(0.0, 1.0), nothing)

    def resume(self, kept: Kept) -> None:
        """Go on after the votes that were kept."""
        self.selection, self.estimation = kept
        self.judged, self._selecting, self.issued = self.estimation, True, self.estimation.stop
        self._judge()

    def kept(self) -> Kept | None:
        """What to keep: up to the last vote at which the bound was evaluated; None before there is any."""
        return None if self.selection is None else (self.selection, self.judged)

    def next_task(self, target: int, size: int) -> VoteTask | None:
        """The next votes to cast, about ``size`` of them and none beyond ``target``; None if all are handed out."""
        if not self._selecting:
            self._selecting = True
            self.out += 1
            return VoteTask(Phase.SELECTION, 0, self.plan.n0)
        if self.issued >= target:
            return None
        block = self.plan.numerics.layout().block
        stop = min(target, (self.issued + max(size, 1) + block - 1) // block * block)
        next_look = self.plan.confidence_bound.next_look
        if next_look is not None:
            stop = min(stop, next_look(self.issued))
        task = VoteTask(Phase.ESTIMATION, self.issued, stop)
        self.issued = stop
        self.out += 1
        return task

    def count(self, tally: Tally, seconds: float) -> bool:
        """Take a task's votes in; whether the standing is another now."""
        self.out -= 1
        self.seconds += seconds
        if tally.stream.phase == Phase.SELECTION:
            self.selection = tally
            self._judge()
            return True
        heapq.heappush(self._ahead, (tally.start, tally))
        before = self.judged.n
        while self._ahead and self._ahead[0][0] == self.estimation.stop:
            self.estimation = self.estimation + heapq.heappop(self._ahead)[1]
            if self.plan.confidence_bound.is_look(self.estimation.n):
                self.judged = self.estimation
        if self.judged.n == before:
            return False
        self._judge()
        return True

    def forget_tasks(self) -> None:
        """The tasks that are out were lost: the same votes are asked for again."""
        self.out = 0
        self._ahead.clear()
        self.issued = self.estimation.stop
        self._selecting = self.selection is not None

    def radius_of(self, tally: Tally) -> float:
        """What estimation votes certify for the class that was chosen."""
        assert self.selection is not None
        return self.plan.certificate.radius(self.plan.bounds_of(tally, self.selection.top()))

    def certification(self, x: NDArray[Any]) -> Certification | None:
        """CERTIFY's answer for an input at this point as it stands; None before the first vote that counts."""
        if self.selection is None or not self.judged.n:
            return None
        plan = replace(self.plan, n=self.judged.n)
        return replace(decide(x, plan, self.selection, self.judged), seconds=self.seconds)

    def _judge(self) -> None:
        if self.selection is not None:
            chosen, tally = self.selection.top(), self.judged
            bounds = self.plan.bounds_of(tally, chosen)
            radius = self.plan.certificate.radius(bounds)
            self.standing = Standing(tally.n, chosen, radius, bounds, tally.counts)


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

    def update(self) -> bool:
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


@dataclass(eq=False)
class _Waiter:
    """A caller's place in the queue: what it waits for, and how many votes it was given."""

    served: float = 0.0
    waiting: deque[Voting] = field(default_factory=deque)


class Schedule:
    """Start-time fair queuing: the next task goes to the caller that was given the fewest votes.

    A caller that comes, or comes back, starts level with the least-served of those that wait: it neither saves up
    votes while it is away nor pays for what it was given when no other was waiting. A caller's own inputs alternate.
    So a caller with a hundred inputs slows one with a single input down no more than a caller with one would.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, _Waiter] = OrderedDict()

    def __len__(self) -> int:
        """Callers that wait."""
        return len(self._callers)

    def join(self, caller: str, voting: Voting) -> None:
        """Queue a voting for a caller; twice is once."""
        waiter = self._callers.get(caller)
        if waiter is None:
            waiter = self._callers[caller] = _Waiter(
                min((each.served for each in self._callers.values()), default=0.0)
            )
        if voting not in waiter.waiting:
            waiter.waiting.append(voting)

    def leave(self, caller: str, voting: Voting) -> None:
        """Take a voting out of a caller's queue; the caller is forgotten with its last one."""
        waiter = self._callers.get(caller)
        if waiter is None or voting not in waiter.waiting:
            return
        waiter.waiting.remove(voting)
        if not waiter.waiting:
            del self._callers[caller]

    def next(self, grant: Callable[[Voting], VoteTask | None]) -> tuple[str, Voting, VoteTask] | None:
        """The next task that ``grant`` has for a voting, and whose it is; None if none is needed now."""
        for caller, waiter in sorted(self._callers.items(), key=lambda item: item[1].served):
            for _ in range(len(waiter.waiting)):
                voting = waiter.waiting[0]
                waiter.waiting.rotate(-1)
                task = grant(voting)
                if task is not None:
                    waiter.served += task.votes
                    return caller, voting, task
        return None
