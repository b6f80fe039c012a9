"""What a bound is: a named rule from a tally and α to probabilities that hold together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from smoothcert.errors import InvalidValueError, check_probability
from smoothcert.registry import Registry
from smoothcert.rounding import down, up
from smoothcert.tally import Tally

VoteKind = Literal["hard", "soft"]


@dataclass(frozen=True)
class ClassBounds:
    """``p_A ≥ lower`` and ``p_c ≤ upper`` for every other class c, jointly with probability 1−α."""

    lower: float
    upper: float

    @property
    def separated(self) -> bool:
        """Whether the chosen class is ahead of every other one."""
        return self.lower > self.upper

    def paying(self, error: float) -> ClassBounds:
        """Bounds for probabilities that may differ by ``error`` from those that were bounded, rounded outwards."""
        if not error:
            return self
        return ClassBounds(max(0.0, down(self.lower - error, 0.0)), min(1.0, up(self.upper + error, 0.0)))


@dataclass(frozen=True)
class Bound:
    """A named rule ``(tally, chosen class, alpha) → ClassBounds`` with what it needs and where it is from.

    ``anytime`` says whether the number of votes may depend on the votes; no fixed-n bound allows that. An anytime
    bound counts every vote of its stream from the first. ``next_look`` gives the smallest number of votes above n
    at which the bound may be evaluated; None: at every n.
    """

    name: str
    votes: VoteKind
    anytime: bool
    source: str
    compute: Callable[[Tally, int, float], ClassBounds]
    next_look: Callable[[int], int] | None = None
    superseded: bool = False
    """Whether it is kept for the runs that state it only; messages recommend others."""
    partner: str = "mixture-top-two"
    """The bound of hard votes in its place where the number of votes depends on them."""

    def __call__(self, tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        """Bounds for class ``chosen``; they fail with probability at most ``alpha`` over the tally's votes."""
        alpha = check_probability("alpha", alpha)
        if not 0 <= chosen < len(tally.counts):
            raise InvalidValueError(f"class {chosen} is outside 0..{len(tally.counts) - 1}")
        if tally.n < 1:
            raise InvalidValueError("a bound needs at least one vote, got an empty tally")
        if self.anytime and tally.start != 0:
            raise InvalidValueError(
                f"the {self.name} bound needs every vote of the stream from the first, got votes {tally.start} to "
                f"{tally.stop}: leaving out the beginning could be a choice made by looking at it"
            )
        self.check_look(tally.n)
        return self.compute(tally, chosen, alpha)

    def check_look(self, n: int) -> None:
        """Refuse an n at which the bound may not be evaluated, naming the allowed ones around it."""
        if self.next_look is None or self.is_look(n):
            return
        before, after = self.last_look(n), self.next_look(n)
        raise InvalidValueError(
            f"the {self.name} bound may not be evaluated at n = {n}, which isn't one of its looks; the nearest are "
            f"{before} and {after}"
        )

    def is_look(self, n: int) -> bool:
        """Whether the bound may be evaluated at n votes."""
        return self.next_look is None or self.next_look(n - 1) == n

    def last_look(self, n: int) -> int:
        """The largest permitted number of votes that is at most n."""
        if self.next_look is None:
            return n
        look = self.next_look(0)
        if n < look:
            raise InvalidValueError(f"the {self.name} bound's first look is at n = {look}, got n = {n}")
        while (later := self.next_look(look)) <= n:
            look = later
        return look


BOUNDS: Registry[Bound] = Registry("bound", __package__)


Compute = Callable[[Tally, int, float], ClassBounds]


def register(
    name: str, votes: VoteKind, source: str, anytime: bool = False, **fields: Any
) -> Callable[[Compute], Compute]:
    """Put a bound on the list of bounds; ``fields`` are further ones of :class:`Bound`."""

    def add(compute: Compute) -> Compute:
        BOUNDS.register(name)(Bound(name, votes, anytime, source, compute, **fields))
        return compute

    return add


def one_sided(lower: float) -> ClassBounds:
    """The rivals share what the chosen class leaves."""
    lower = max(0.0, lower)
    return ClassBounds(lower, complement_up(lower))


def complement_up(p: float) -> float:
    """1 − p, rounded up."""
    return min(1.0, up(1.0 - p, 0.0))
