"""A total of votes for a data set, spread where it pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.stopping.arguments import COUNT, Form, count
from smoothcert.stopping.base import Goal
from smoothcert.stopping.budgets import BUDGETS, PILOT_VOTES, PilotedBudget


@BUDGETS.register("total")
@dataclass(frozen=True)
class Total(PilotedBudget):
    """``total`` votes for a whole data set, pilots included, spread so that the mean radius comes out largest.

    Pilots for all inputs first, then :func:`~smoothcert.stopping.allocate`, then fresh votes with the fixed-n bound.
    """

    name: ClassVar[str] = "total"
    example: ClassVar[str] = "total:50000000"
    goal: ClassVar[Goal] = "mean radius"
    words: ClassVar[str] = "so many votes for all inputs together: see --total-votes"
    needs_label: ClassVar[bool] = True
    MOST: ClassVar[int] = 16
    """No input gets more than this many times the plan's n: beyond, radii hardly grow."""
    form: ClassVar[Form] = COUNT
    total: int
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        check_count("total votes", self.total)
        super().__post_init__()

    @classmethod
    def read(cls, argument: str) -> tuple[int]:
        """A count; the example of a mistake's message shows how the pilots' votes are stated, too."""
        return (count(cls.name, argument, f"{cls.example},500"),)

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
