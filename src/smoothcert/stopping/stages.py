"""Two stages: a pilot's votes, thrown away afterwards, decide how many fresh ones the certificate gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import check_count
from smoothcert.stopping.base import Sees, check_share, count, percent, register
from smoothcert.stopping.moment import Moment
from smoothcert.stopping.outlook import Outlook, sizes
from smoothcert.tally import Tally

PILOT_VOTES = 1000
LEAST_VOTES = 100
_TOLERANCE = (
    0.7  # keeps the loss near `loss` on published distributions of p_A (benchmarks/adaptive_simulation.py)
)


@register
@dataclass(frozen=True)
class Pilot:
    """The fewest votes whose expected radius is hardly short of the full budget's: about the share ``loss`` of the ACR.

    ``votes`` pilot votes, of a stream of their own, choose n; then n fresh votes get the fixed-n bound, for which n
    is a constant because the pilot is independent of them. A small radius may be short by a larger share of it than a
    large one (by ``loss`` times the geometric mean of it and the largest possible radius, nearly): it adds less to
    the mean over inputs, and its last percent is the dearest.
    """

    name: ClassVar[str] = "pilot"
    sees: ClassVar[Sees] = "pilot"
    needs_label: ClassVar[bool] = False
    loss: float = 0.01
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        check_share(self.name, self.loss)
        check_count("the votes of pilot", self.votes)

    @property
    def text(self) -> str:
        """``pilot:1%`` or ``pilot:1%,500``."""
        return f"{self.name}:{100 * self.loss:.12g}%{_votes_text(self.votes)}"

    @classmethod
    def parse(cls, argument: str) -> Pilot:
        """Read ``1%`` or ``1%,500``."""
        loss, comma, votes = argument.partition(",")
        share = percent(cls.name, loss, "pilot:1%")
        return cls(share, count(cls.name, votes, "pilot:1%,500") if comma else PILOT_VOTES)

    def choose(self, outlook: Outlook, pilot: Tally, chosen: int, n: int, block: int) -> int:
        """The number of fresh votes for this input, at most n."""
        full = outlook.expected(pilot, chosen, n)
        short = _TOLERANCE * self.loss * math.sqrt(full * outlook.ceiling(n))
        return outlook.fewest(pilot, chosen, sizes(min(n, LEAST_VOTES), n, block, growth=1.06), short)

    def reason(self, moment: Moment) -> str | None:  # noqa: ARG002  (every rule has it)
        """Never: the pilot has decided before."""
        return None


@register
@dataclass(frozen=True)
class Total:
    """``total`` votes for a whole data set, pilots included, spread so that the mean radius comes out largest.

    Pilots for all inputs first, then :func:`~smoothcert.stopping.allocate`, then fresh votes with the fixed-n bound.
    """

    name: ClassVar[str] = "total"
    sees: ClassVar[Sees] = "pilot"
    needs_label: ClassVar[bool] = True
    MOST: ClassVar[int] = 16
    """No input gets more than this many times the plan's n: beyond, radii hardly grow."""
    total: int
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        check_count("total votes", self.total)
        check_count("the votes of pilot", self.votes)

    @property
    def text(self) -> str:
        """``total:50000000`` or ``total:50000000,500``."""
        return f"{self.name}:{self.total}{_votes_text(self.votes)}"

    @classmethod
    def parse(cls, argument: str) -> Total:
        """Read ``50000000`` or ``5e7,500``."""
        total, comma, votes = argument.partition(",")
        example = "total:50000000,500"
        return cls(count(cls.name, total, example), count(cls.name, votes, example) if comma else PILOT_VOTES)

    def reason(self, moment: Moment) -> str | None:  # noqa: ARG002  (every rule has it)
        """Never: the allocation has decided before."""
        return None


def _votes_text(votes: int) -> str:
    return "" if votes == PILOT_VOTES else f",{votes}"
