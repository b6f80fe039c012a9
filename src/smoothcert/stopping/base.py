"""What a stop rule is, and the list of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

from smoothcert.registry import Registry
from smoothcert.stopping.arguments import number
from smoothcert.stopping.voting_state import VotingState

Sees = Literal["selection", "estimation"]
"""The votes that a rule looks at. Only one that looks at the estimation votes needs an anytime-valid bound."""

Goal = Literal["decision", "mean radius", "any"]
"""What votes are saved for. Where it is a decision, radii stop growing once it is made: their mean means little."""

FUTILITY = 0.01
"""Chance of giving up on an input that would have made it. It costs power, never validity."""


class Stated(ABC):
    """What plans and the command line write as ``name`` or ``name:argument``: a stop rule, or a budget."""

    name: ClassVar[str]
    example: ClassVar[str]
    """How it is written."""
    words: ClassVar[str]
    """What help says of the example."""
    goal: ClassVar[Goal]
    needs_label: ClassVar[bool] = False

    @property
    @abstractmethod
    def text(self) -> str:
        """The whole as it is parsed."""

    @classmethod
    @abstractmethod
    def parse(cls, argument: str) -> Self:
        """What the text after the colon describes."""


class StopRule(Stated):
    """A frozen description of when to stop."""

    sees: ClassVar[Sees] = "estimation"

    @abstractmethod
    def reason(self, state: VotingState) -> str | None:
        """Why voting ends now ("word: details"), or None to go on."""


class FutilityRule(StopRule):
    """A rule that also gives up, at level ``futility``: a dataclass whose last field that is. ``@0.001`` states it."""

    futility: float

    @property
    @abstractmethod
    def argument(self) -> str:
        """The other fields as text."""

    @classmethod
    @abstractmethod
    def read(cls, argument: str) -> tuple[Any, ...]:
        """The other fields from text."""

    @property
    def text(self) -> str:
        """``name:argument@futility``, without what goes without saying."""
        stated = self.argument + ("" if self.futility == FUTILITY else f"@{self.futility!r}")
        return f"{self.name}:{stated}" if stated else self.name

    @classmethod
    def parse(cls, argument: str) -> Self:
        """Read the argument, and the futility after an ``@``."""
        stated, at, futility = argument.partition("@")
        level = number(cls.name, futility, f"{cls.example}@{FUTILITY}") if at else FUTILITY
        return cls(*cls.read(stated), level)  # type: ignore[call-arg]  # a dataclass of these fields


STOP_RULES: Registry[type[StopRule]] = Registry("stopping rule", __package__)
