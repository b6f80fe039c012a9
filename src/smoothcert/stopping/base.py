"""What a stop rule is, and the list of them."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, TypeVar

from smoothcert.registry import Registry
from smoothcert.stopping.voting_state import VotingState

Sees = Literal["selection", "estimation"]
"""The votes that a rule looks at. Only one that looks at the estimation votes needs an anytime-valid bound."""


class StopRule(Protocol):
    """A frozen description of when to stop; ``text`` is how plans and the command line write it."""

    name: ClassVar[str]
    sees: ClassVar[Sees]
    needs_label: ClassVar[bool]

    @property
    def text(self) -> str:
        """The rule as it is parsed."""
        ...

    @classmethod
    def parse(cls, argument: str) -> StopRule:
        """The rule that the text after the colon describes."""
        ...

    def reason(self, state: VotingState) -> str | None:
        """Why voting ends now ("word: details"), or None to go on."""
        ...


STOP_RULES: Registry[type[StopRule]] = Registry("stopping rule")

R = TypeVar("R", bound=type[StopRule])


def register(rule: R) -> R:
    """Put a rule on the list under its name."""
    STOP_RULES.register(rule.name)(rule)
    return rule
