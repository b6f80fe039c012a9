"""Stop where nothing will be certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import check_probability
from smoothcert.stopping.arguments import no_argument
from smoothcert.stopping.base import FUTILITY, STOP_RULES, FutilityRule, Goal
from smoothcert.stopping.voting_state import VotingState


@STOP_RULES.register("abstain")
@dataclass(frozen=True)
class Abstain(FutilityRule):
    """The votes will hardly certify anything: abstain now."""

    name: ClassVar[str] = "abstain"
    example: ClassVar[str] = "abstain"
    words: ClassVar[str] = "give up where nothing will be certified"
    goal: ClassVar[Goal] = "any"
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_probability("futility", self.futility)

    @property
    def argument(self) -> str:
        """None."""
        return ""

    @classmethod
    def read(cls, argument: str) -> tuple[()]:
        """Nothing."""
        return no_argument(lambda: (), cls.name, argument)

    def reason(self, state: VotingState) -> str | None:
        """Stop when not even a radius of 0+ is in reach."""
        hopeless = state.radius == 0 and state.best_radius(self.futility) == 0
        return "hopeless: abstains" if hopeless else None
