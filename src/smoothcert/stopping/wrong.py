"""Cast no votes for a class that isn't the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidValueError
from smoothcert.stopping.base import STOP_RULES, Goal, Sees, StopRule
from smoothcert.stopping.voting_state import VotingState


@STOP_RULES.register("wrong")
@dataclass(frozen=True)
class Wrong(StopRule):
    """The chosen class isn't the label: whatever its radius, it counts nowhere. Looks at no estimation vote."""

    name: ClassVar[str] = "wrong"
    example: ClassVar[str] = "wrong"
    words: ClassVar[str] = "no votes where the chosen class isn't the label; counted as abstained"
    goal: ClassVar[Goal] = "any"
    sees: ClassVar[Sees] = "selection"
    needs_label: ClassVar[bool] = True

    def reason(self, state: VotingState) -> str | None:
        """Compare with the label, before any estimation vote."""
        if state.label is None:
            raise InvalidValueError(
                "the stopping rule 'wrong' needs the label of every input; leave it out where labels are unknown"
            )
        if state.chosen == state.label:
            return None
        return f"wrong: candidate {state.chosen}, label {state.label}"
