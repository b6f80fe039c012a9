"""Rules that end the voting on one input by what the votes so far say."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from smoothcert.errors import InvalidValueError, check_not_negative, check_positive, check_probability
from smoothcert.stopping.arguments import check_share, no_argument, number, percent, shortest
from smoothcert.stopping.base import Sees, register
from smoothcert.stopping.voting_state import VotingState

FUTILITY = 0.01
"""Chance of giving up on an input that would have made it. It costs power, never validity."""


@register
@dataclass(frozen=True)
class Decide:
    """Is the radius at least ``radius``? Yes once it is; no once it is hopeless (at level ``futility``)."""

    name: ClassVar[str] = "decide"
    sees: ClassVar[Sees] = "estimation"
    needs_label: ClassVar[bool] = False
    radius: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_positive("the radius of decide", self.radius)
        check_probability("futility", self.futility)

    @property
    def text(self) -> str:
        """``decide:0.5``."""
        return f"{self.name}:{shortest(self.radius)}{_futility_text(self.futility)}"

    @classmethod
    def parse(cls, argument: str) -> Decide:
        """Read ``0.5`` or ``0.5@0.001``."""
        radius, futility = _with_futility(cls.name, argument, "decide:0.5")
        return cls(number(cls.name, radius, "decide:0.5"), futility)

    def reason(self, state: VotingState) -> str | None:
        """Yes, no, or not yet."""
        if state.radius >= self.radius:
            return f"decided: radius at least {shortest(self.radius)}"
        if state.best_radius(self.futility) < self.radius:
            return f"hopeless: radius below {shortest(self.radius)}"
        return None


@register
@dataclass(frozen=True)
class Grid:
    """Between which of these radii is the radius? All that a table of certified accuracies needs.

    Radius 0 stands for any certificate at all, as in tables.
    """

    name: ClassVar[str] = "grid"
    sees: ClassVar[Sees] = "estimation"
    needs_label: ClassVar[bool] = False
    radii: tuple[float, ...]
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        if not self.radii:
            raise InvalidValueError("grid needs radii; write for example grid:0,0.25,0.5")
        for radius in self.radii:
            check_not_negative("a radius of grid", radius)
        if any(a >= b for a, b in pairwise(self.radii)):
            raise InvalidValueError(
                f"the radii of grid must increase, got {', '.join(map(shortest, self.radii))}"
            )
        check_probability("futility", self.futility)

    @property
    def text(self) -> str:
        """``grid:0,0.25,0.5``."""
        return f"{self.name}:{','.join(map(shortest, self.radii))}{_futility_text(self.futility)}"

    @classmethod
    def parse(cls, argument: str) -> Grid:
        """Read ``0,0.25,0.5``."""
        radii, futility = _with_futility(cls.name, argument, "grid:0,0.25,0.5")
        return cls(tuple(number(cls.name, r, "grid:0,0.25,0.5") for r in radii.split(",")), futility)

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


@register
@dataclass(frozen=True)
class Gain:
    """The radius wouldn't grow by more than the share ``gain`` within the budget, if votes go on as they were."""

    name: ClassVar[str] = "gain"
    sees: ClassVar[Sees] = "estimation"
    needs_label: ClassVar[bool] = False
    gain: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_share(self.name, self.gain)
        check_probability("futility", self.futility)

    @property
    def text(self) -> str:
        """``gain:1%``."""
        return f"{self.name}:{100 * self.gain:.12g}%{_futility_text(self.futility)}"

    @classmethod
    def parse(cls, argument: str) -> Gain:
        """Read ``1%``."""
        gain, futility = _with_futility(cls.name, argument, "gain:1%")
        return cls(percent(cls.name, gain, "gain:1%"), futility)

    def reason(self, state: VotingState) -> str | None:
        """Compare with the radius that the full budget would bring; give up on what will abstain."""
        if state.radius == 0:
            return "hopeless: abstains" if state.best_radius(self.futility) == 0 else None
        if state.expected_radius() <= state.radius * (1 + self.gain):
            return f"settled: would gain at most {100 * self.gain:g} %"
        return None


@register
@dataclass(frozen=True)
class Abstain:
    """The votes will hardly certify anything: abstain now."""

    name: ClassVar[str] = "abstain"
    sees: ClassVar[Sees] = "estimation"
    needs_label: ClassVar[bool] = False
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        check_probability("futility", self.futility)

    @property
    def text(self) -> str:
        """``abstain``."""
        return self.name if self.futility == FUTILITY else f"{self.name}:{_futility_text(self.futility)}"

    @classmethod
    def parse(cls, argument: str) -> Abstain:
        """Read nothing, or ``@0.001``."""
        rest, futility = _with_futility(cls.name, argument, "abstain")
        if rest:
            raise InvalidValueError(f"abstain takes no value, got {rest!r}; write abstain")
        return cls(futility)

    def reason(self, state: VotingState) -> str | None:
        """Stop when not even a radius of 0+ is in reach."""
        hopeless = state.radius == 0 and state.best_radius(self.futility) == 0
        return "hopeless: abstains" if hopeless else None


@register
@dataclass(frozen=True)
class Wrong:
    """The chosen class isn't the label: whatever its radius, it counts nowhere. Looks at no estimation vote."""

    name: ClassVar[str] = "wrong"
    sees: ClassVar[Sees] = "selection"
    needs_label: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """``wrong``."""
        return self.name

    @classmethod
    def parse(cls, argument: str) -> Wrong:
        """Read nothing."""
        return no_argument(cls, cls.name, argument)

    def reason(self, state: VotingState) -> str | None:
        """Compare with the label, before any estimation vote."""
        if state.label is None:
            raise InvalidValueError(
                "the stopping rule 'wrong' needs the label of every input; leave it out where labels are unknown"
            )
        if state.chosen == state.label:
            return None
        return f"wrong: candidate {state.chosen}, label {state.label}"


def _reached(radius: float, target: float) -> bool:
    return radius > 0 and radius >= target


def _with_futility(rule: str, argument: str, example: str) -> tuple[str, float]:
    value, at, futility = argument.partition("@")
    return value, number(rule, futility, f"{example}@{FUTILITY}") if at else FUTILITY


def _futility_text(futility: float) -> str:
    return "" if futility == FUTILITY else f"@{futility!r}"
