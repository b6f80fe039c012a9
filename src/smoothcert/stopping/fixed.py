"""The papers' budget: as many votes for every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from smoothcert.stopping.arguments import no_argument
from smoothcert.stopping.base import Goal
from smoothcert.stopping.budgets import BUDGETS, Budget


@BUDGETS.register("budget")
@dataclass(frozen=True)
class FixedVotes(Budget):
    """The plan's n for every input, as in the papers. What every plan has that names no other."""

    name: ClassVar[str] = "budget"
    example: ClassVar[str] = "budget"
    words: ClassVar[str] = "n votes for every input, as in the papers: the default"
    goal: ClassVar[Goal] = "any"

    @property
    def text(self) -> str:
        """``budget``."""
        return self.name

    @classmethod
    def parse(cls, argument: str) -> Self:
        """Read nothing."""
        return no_argument(cls, cls.name, argument)
