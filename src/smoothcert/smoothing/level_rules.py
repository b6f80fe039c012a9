"""When the voting at another level than the input's own has shown enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.stopping.base import FUTILITY, FutilityRule, Goal
from smoothcert.stopping.voting_state import VotingState


@dataclass(frozen=True)
class Enough(FutilityRule):
    """Stop at the radius that the other levels leave, or once this level can hardly come beyond the chooser's reach.

    Between the two every vote counts: where a level falls short of the others, its own radius is the answer's. It is
    no rule of a plan but of what a plan's other levels need, and stated nowhere.
    """

    name: ClassVar[str] = "enough"
    goal: ClassVar[Goal] = "decision"
    radius: float
    """More than this is of no use."""
    reach: float
    """As far as this the median can't come to the level: less is of no use, either."""
    futility: float = FUTILITY

    def reason(self, state: VotingState) -> str | None:
        """Enough, useless, or not yet."""
        if state.radius >= self.radius:
            return f"enough: radius at least {self.radius:g}"
        if state.best_radius(self.futility) <= self.reach:
            return f"useless: radius not beyond {self.reach:g}"
        return None
