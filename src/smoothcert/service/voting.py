"""The voting on one point: which of its votes are counted, and what they certify so far."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from smoothcert.bounds import ClassBounds
from smoothcert.smoothing import Certification, CertifyPlan, decide
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally


@dataclass(frozen=True)
class Lease:
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

    Leases may come back in any order; only votes without a gap from the first on count. The bound is evaluated where
    it may be: everywhere, or at its looks, which leases end at.
    """

    index: int
    x: NDArray[Any]
    plan: CertifyPlan
    classes: int
    selection: Tally | None = None
    estimation: Tally = field(init=False)
    issued: int = 0
    out: int = 0
    """Leases that haven't come back."""
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

    def lease(self, target: int, size: int) -> Lease | None:
        """The next votes to cast, about ``size`` of them and none beyond ``target``; None if all are handed out."""
        if not self._selecting:
            self._selecting = True
            self.out += 1
            return Lease(Phase.SELECTION, 0, self.plan.n0)
        if self.issued >= target:
            return None
        block = self.plan.numerics.layout().block
        stop = min(target, (self.issued + max(size, 1) + block - 1) // block * block)
        next_look = self.plan.confidence_bound.next_look
        if next_look is not None:
            stop = min(stop, next_look(self.issued))
        lease = Lease(Phase.ESTIMATION, self.issued, stop)
        self.issued = stop
        self.out += 1
        return lease

    def count(self, tally: Tally, seconds: float) -> bool:
        """Take a lease's votes in; whether the standing is another now."""
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

    def forget_leases(self) -> None:
        """The leases that are out were lost: the same votes are asked for again."""
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
        if self.selection is None:
            return
        chosen, tally = self.selection.top(), self.judged
        bounds = self.plan.bounds_of(tally, chosen)
        radius = self.plan.certificate.radius(bounds)
        self.standing = Standing(tally.n, chosen, radius, bounds, tally.counts)
