"""Stop once a radius is reached, or hopeless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import check_positive, check_probability
from smoothcert.stopping.arguments import number, shortest
from smoothcert.stopping.base import FUTILITY, STOP_RULES, FutilityRule, Goal
from smoothcert.stopping.voting_state import VotingState


@STOP_RULES.register("decide")
@dataclass(frozen=True)
class Decide(FutilityRule):
    """Is the radius at least ``radius``? Yes once it is; no once it is hopeless (at level ``futility``)."""

    name: ClassVar[str] = "decide"
    example: ClassVar[str] = "decide:0.5"
    words: ClassVar[str] = "is the radius at least 0.5?"
    goal: ClassVar[Goal] = "decision"
    radius: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_positive("the radius of decide", self.radius)
        check_probability("futility", self.futility)

    @property
    def argument(self) -> str:
        """``0.5``."""
        return shortest(self.radius)

    @classmethod
    def read(cls, argument: str) -> tuple[float]:
        """A number."""
        return (number(cls.name, argument, cls.example),)

    def reason(self, state: VotingState) -> str | None:
        """Yes, no, or not yet."""
        if state.radius >= self.radius:
            return f"decided: radius at least {shortest(self.radius)}"
        if state.best_radius(self.futility) < self.radius:
            return f"hopeless: radius below {shortest(self.radius)}"
        return None
