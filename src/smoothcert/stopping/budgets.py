"""Budgets: how many estimation votes an input gets, settled before the first of them is drawn.

To those votes n is then a constant, however it was chosen, and the papers' fixed-n bounds hold at it. A budget that
looks at votes first looks at a pilot: votes of a stream of their own, thrown away afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.registry import Registry
from smoothcert.stopping.arguments import Tail, count
from smoothcert.stopping.base import Goal, Stated
from smoothcert.stopping.radius_forecast import RadiusForecast
from smoothcert.tally import Tally

PILOT_VOTES = 1000
MINIMUM_VOTES = 100


class Budget(Stated):
    """A frozen description of the votes there are for an input, or for a data set."""

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

    def check_inputs(self, inputs: int, n0: int) -> None:
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


class PilotedBudget(Budget):
    """One that pilots help to settle: a dataclass whose last field is ``votes``; ``,500`` states it."""

    tail: ClassVar[Tail] = Tail(",", PILOT_VOTES, count, ",500")
    votes: int

    def __post_init__(self) -> None:
        check_count("the votes of pilot", self.votes)

    @property
    def pilot_votes(self) -> int:
        """As stated."""
        return self.votes


BUDGETS: Registry[type[Budget]] = Registry("budget of votes", __package__)


@BUDGETS.register("budget")
@dataclass(frozen=True)
class FixedVotes(Budget):
    """The plan's n for every input, as in the papers. The default."""

    name: ClassVar[str] = "budget"
    example: ClassVar[str] = "budget"
    words: ClassVar[str] = "n votes for every input, as in the papers: the default"
    goal: ClassVar[Goal] = "any"
