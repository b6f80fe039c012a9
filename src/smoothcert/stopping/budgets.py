"""Budgets: how many estimation votes an input gets, settled before the first of them is drawn.

To those votes n is then a constant, however it was chosen, and the papers' fixed-n bounds hold at it. A budget that
looks at votes first looks at a pilot: votes of a stream of their own, thrown away afterwards.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.registry import Registry
from smoothcert.stopping.arguments import check_share, count, no_argument, percent
from smoothcert.stopping.radius_forecast import RadiusForecast, sizes
from smoothcert.tally import Tally

PILOT_VOTES = 1000
MINIMUM_VOTES = 100
_TOLERANCE = (
    0.7  # keeps the loss near `loss` on published distributions of p_A (benchmarks/adaptive_simulation.py)
)


class Budget(ABC):
    """A frozen description of the votes there are for an input, or for a data set; ``text`` is how plans write it."""

    name: ClassVar[str]
    needs_label: ClassVar[bool] = False

    @property
    @abstractmethod
    def text(self) -> str:
        """The budget as it is parsed."""

    @classmethod
    @abstractmethod
    def parse(cls, argument: str) -> Budget:
        """The budget that the text after the colon describes."""

    @property
    def pilot_votes(self) -> int:
        """Votes of an input's pilot, which help to settle its n and certify nothing; 0: n is the plan's."""
        return 0

    @property
    def shared_votes(self) -> int | None:
        """The votes that all inputs of a data set share, pilots included; None where each input has its own."""
        return None

    @property
    def spreads(self) -> bool:
        """Whether votes are spread over a data set: then each input's n depends on the others' pilots."""
        return self.shared_votes is not None

    def most_votes(self, n: int) -> int:
        """The most estimation votes that one input can get, under a plan with ``n``."""
        return n

    def check_inputs(self, inputs: int, n0: int) -> None:  # noqa: B027  (most suffice for any number of inputs)
        """Refuse more inputs than the budget can cover."""

    def choose(
        self,
        forecast: RadiusForecast,  # noqa: ARG002
        pilot: Tally,  # noqa: ARG002
        chosen: int,  # noqa: ARG002
        n: int,  # noqa: ARG002
        block: int,  # noqa: ARG002
    ) -> int:
        """The number of fresh votes, at most ``n``, for an input with this pilot; asked only where it has one."""
        raise InvalidValueError(f"{self.text} doesn't choose the votes of one input by its pilot alone")


BUDGETS: Registry[type[Budget]] = Registry("budget of votes")

B = TypeVar("B", bound=type[Budget])


def register(budget: B) -> B:
    """Put a budget on the list under its name."""
    BUDGETS.register(budget.name)(budget)
    return budget


@register
@dataclass(frozen=True)
class FixedVotes(Budget):
    """The plan's n for every input, as in the papers. The default."""

    name: ClassVar[str] = "budget"

    @property
    def text(self) -> str:
        """``budget``."""
        return self.name

    @classmethod
    def parse(cls, argument: str) -> FixedVotes:
        """Read nothing."""
        return no_argument(cls, cls.name, argument)


@register
@dataclass(frozen=True)
class Pilot(Budget):
    """The fewest votes whose expected radius is hardly short of the full budget's: about the share ``loss`` of the ACR.

    ``votes`` pilot votes, of a stream of their own, choose n; then n fresh votes get the fixed-n bound, for which n
    is a constant because the pilot is independent of them. A small radius may be short by a larger share of it than a
    large one (by ``loss`` times the geometric mean of it and the largest possible radius, nearly): it adds less to
    the mean over inputs, and its last percent is the dearest.
    """

    name: ClassVar[str] = "pilot"
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

    @property
    def pilot_votes(self) -> int:
        """As many for every input."""
        return self.votes

    def choose(self, forecast: RadiusForecast, pilot: Tally, chosen: int, n: int, block: int) -> int:
        """The fewest whose mean radius is near enough to that of n."""
        full = forecast.expected(pilot, chosen, n)
        short = _TOLERANCE * self.loss * math.sqrt(full * forecast.ceiling(n))
        return forecast.fewest(pilot, chosen, sizes(min(n, MINIMUM_VOTES), n, block, growth=1.06), short)


@register
@dataclass(frozen=True)
class Total(Budget):
    """``total`` votes for a whole data set, pilots included, spread so that the mean radius comes out largest.

    Pilots for all inputs first, then :func:`~smoothcert.stopping.allocate`, then fresh votes with the fixed-n bound.
    """

    name: ClassVar[str] = "total"
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

    @property
    def pilot_votes(self) -> int:
        """For every input whose class is its label."""
        return self.votes

    @property
    def shared_votes(self) -> int:
        """The total."""
        return self.total

    def most_votes(self, n: int) -> int:
        """Several times the plan's n."""
        return n * self.MOST

    def check_inputs(self, inputs: int, n0: int) -> None:
        """Refuse a total that the pilots alone could use up."""
        needed = inputs * (n0 + self.votes)
        if self.total <= needed:
            raise InvalidValueError(
                f"{self.total} votes in all leave none to certify with: choosing classes and pilots take up to "
                f"{needed} for {inputs} inputs; give more votes, fewer inputs, or smaller pilots "
                f"(total:{self.total},100)"
            )


def _votes_text(votes: int) -> str:
    return "" if votes == PILOT_VOTES else f",{votes}"
