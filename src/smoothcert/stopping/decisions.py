"""Stop once it is decided on which side of a radius, or between which radii of a table, the radius lies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from smoothcert.errors import InvalidValueError, check_not_negative, check_positive
from smoothcert.stopping.arguments import NUMBER, NUMBERS, Form, shortest
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
    form: ClassVar[Form] = NUMBER
    radius: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", check_positive("the radius of decide", self.radius))
        super().__post_init__()

    def reason(self, state: VotingState) -> str | None:
        """Yes, no, or not yet."""
        if state.radius >= self.radius:
            return f"decided: radius at least {shortest(self.radius)}"
        if state.best_radius(self.futility) < self.radius:
            return f"hopeless: radius below {shortest(self.radius)}"
        return None


@STOP_RULES.register("grid")
@dataclass(frozen=True)
class Grid(FutilityRule):
    """Between which of these radii is the radius? All that a table of certified accuracies needs.

    Radius 0 stands for any certificate at all, as in tables.
    """

    name: ClassVar[str] = "grid"
    example: ClassVar[str] = "grid:0,0.25,0.5"
    words: ClassVar[str] = "a table of certified accuracies at these radii"
    goal: ClassVar[Goal] = "decision"
    form: ClassVar[Form] = NUMBERS
    radii: tuple[float, ...]
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        if not self.radii:
            raise InvalidValueError(f"grid needs radii; write for example {self.example}")
        radii = tuple(check_not_negative("a radius of grid", radius) for radius in self.radii)
        object.__setattr__(self, "radii", radii)
        if any(a >= b for a, b in pairwise(self.radii)):
            raise InvalidValueError(
                f"the radii of grid must increase, got {', '.join(map(shortest, self.radii))}"
            )
        super().__post_init__()

    def reason(self, state: VotingState) -> str | None:
        """Stop when every radius of the grid is reached or hopeless."""
        unreached = [r for r in self.radii if not _reached(state.radius, r)]
        reached = [r for r in self.radii if _reached(state.radius, r)]
        if not unreached:
            return f"decided: radius at least {shortest(self.radii[-1])}"
        if _reached(state.best_radius(self.futility), unreached[0]):
            return None
        if not reached:
            return "hopeless: " + (
                "abstains" if unreached[0] == 0 else f"radius below {shortest(unreached[0])}"
            )
        return f"decided: radius from {shortest(reached[-1])} to {shortest(unreached[0])}"


def _reached(radius: float, target: float) -> bool:
    return radius > 0 and radius >= target
