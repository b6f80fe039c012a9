"""What a stop rule is, and the list of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

from smoothcert.errors import InvalidValueError, check_probability
from smoothcert.registry import Registry
from smoothcert.stopping.arguments import Form, Tail, number
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
    form: ClassVar[Form | None] = None
    """How its first field is written; None where it takes no value."""
    tail: ClassVar[Tail | None] = None
    """How its last field is written, where its family has one in common."""

    @property
    def argument(self) -> str:
        """The first field as text."""
        return "" if self.form is None else self.form.write(next(iter(vars(self).values())))

    @classmethod
    def read(cls, argument: str) -> tuple[Any, ...]:
        """The first field from text."""
        if cls.form is not None:
            return (cls.form.read(cls.name, argument, cls.example),)
        if argument:
            raise InvalidValueError(f"{cls.name} takes no value, got {argument!r}; write {cls.name}")
        return ()

    @property
    def text(self) -> str:
        """The whole as it is parsed."""
        stated = self.argument
        if self.tail is not None and (last := list(vars(self).values())[-1]) != self.tail.usual:
            stated += f"{self.tail.sign}{last!r}"
        return f"{self.name}:{stated}" if stated else self.name

    @classmethod
    def parse(cls, argument: str) -> Self:
        """What the text after the colon describes."""
        if (tail := cls.tail) is None:
            return cls(*cls.read(argument))
        stated, sign, text = argument.partition(tail.sign)
        last = tail.read(cls.name, text, cls.example + tail.example) if sign else tail.usual
        return cls(*(*cls.read(stated), last))


class StopRule(Stated):
    """A frozen description of when to stop."""

    sees: ClassVar[Sees] = "estimation"

    @abstractmethod
    def reason(self, state: VotingState) -> str | None:
        """Why voting ends now ("word: details"), or None to go on."""


class FutilityRule(StopRule):
    """A rule that also gives up, at level ``futility``: a dataclass whose last field that is; ``@0.001`` states it."""

    tail: ClassVar[Tail] = Tail("@", FUTILITY, number, f"@{FUTILITY}")
    futility: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "futility", check_probability("futility", self.futility))


STOP_RULES: Registry[type[StopRule]] = Registry("stopping rule", __package__)
