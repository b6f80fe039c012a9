"""What a bound is: a named rule from a tally and α to probabilities that hold together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from smoothcert.errors import InvalidValueError, check_probability
from smoothcert.registry import Registry
from smoothcert.rounding import up
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


@dataclass(frozen=True)
class Bound:
    """A named rule ``(tally, chosen class, alpha) → ClassBounds`` with what it needs and where it is from.

    ``anytime`` says whether the number of votes may depend on the votes; no fixed-n bound allows that.
    """

    name: str
    votes: VoteKind
    anytime: bool
    source: str
    compute: Callable[[Tally, int, float], ClassBounds]

    def __call__(self, tally: Tally, chosen: int, alpha: float) -> ClassBounds:
        """Bounds for class ``chosen``; they fail with probability at most ``alpha`` over the tally's votes."""
        check_probability("alpha", alpha)
        if not 0 <= chosen < len(tally.counts):
            raise InvalidValueError(f"class {chosen} is outside 0..{len(tally.counts) - 1}")
        if tally.n < 1:
            raise InvalidValueError("a bound needs at least one vote, got an empty tally")
        return self.compute(tally, chosen, alpha)


BOUNDS: Registry[Bound] = Registry("bound")


Compute = Callable[[Tally, int, float], ClassBounds]


def register(name: str, votes: VoteKind, source: str) -> Callable[[Compute], Compute]:
    """Put a fixed-n bound on the list of bounds."""

    def add(compute: Compute) -> Compute:
        BOUNDS.register(name)(Bound(name, votes, anytime=False, source=source, compute=compute))
        return compute

    return add


def one_sided(lower: float) -> ClassBounds:
    """The rivals share what the chosen class leaves."""
    lower = max(0.0, lower)
    return ClassBounds(lower, complement_up(lower))


def complement_up(p: float) -> float:
    """1 − p, rounded up."""
    return up(1.0 - p, 0.0) if p > 0 else 1.0
