"""Stop where further votes would hardly bring anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.stopping.arguments import PERCENT, Form, check_share
from smoothcert.stopping.base import FUTILITY, STOP_RULES, FutilityRule, Goal
from smoothcert.stopping.voting_state import VotingState


@STOP_RULES.register("gain")
@dataclass(frozen=True)
class Gain(FutilityRule):
    """The radius wouldn't grow by more than the share ``gain`` within the budget, if votes go on as they were."""

    name: ClassVar[str] = "gain"
    example: ClassVar[str] = "gain:1%"
    words: ClassVar[str] = "until the full n would bring at most 1 % more; needs more votes than pilot"
    goal: ClassVar[Goal] = "mean radius"
    form: ClassVar[Form] = PERCENT
    gain: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_share(self.name, self.gain)
        super().__post_init__()

    def reason(self, state: VotingState) -> str | None:
        """Compare with the radius that the full budget would bring; give up on what will abstain."""
        if state.radius == 0:
            return "hopeless: abstains" if state.best_radius(self.futility) == 0 else None
        if state.expected_radius() <= state.radius * (1 + self.gain):
            return f"settled: would gain at most {100 * self.gain:g} %"
        return None


@STOP_RULES.register("abstain")
@dataclass(frozen=True)
class Abstain(FutilityRule):
    """The votes will hardly certify anything: abstain now."""

    name: ClassVar[str] = "abstain"
    example: ClassVar[str] = "abstain"
    words: ClassVar[str] = "give up where nothing will be certified"
    goal: ClassVar[Goal] = "any"
    futility: float = FUTILITY

    def reason(self, state: VotingState) -> str | None:
        """Stop when not even a radius of 0+ is in reach."""
        hopeless = state.radius == 0 and state.best_radius(self.futility) == 0
        return "hopeless: abstains" if hopeless else None
