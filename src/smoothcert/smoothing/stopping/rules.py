"""The stop rules, and the budgets that a pilot settles by votes of a stream of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from smoothcert.errors import InvalidValueError, check_count, check_not_negative, check_positive
from smoothcert.smoothing.stopping.base import (
    BUDGETS,
    COUNT,
    FUTILITY,
    NUMBER,
    NUMBERS,
    PERCENT,
    PILOT_VOTES,
    STOP_RULES,
    FutilityRule,
    PilotedBudget,
    StopRule,
    shortest,
)
from smoothcert.smoothing.stopping.forecasts import RadiusForecast, VotingState, sizes
from smoothcert.tally import Tally

MINIMUM_VOTES = 100

# Keeps the loss near `loss` on published distributions of p_A (benchmarks/votes.py).
_TOLERANCE = 0.7


@BUDGETS.register("pilot")
@dataclass(frozen=True)
class Pilot(
    PilotedBudget,
    example="pilot:1%",
    words="1000 other votes choose n, for about 1 % of the radius; pilot:1%,500 for 500",
    goal="mean radius",
    form=PERCENT,
):
    """The fewest votes whose expected radius is hardly short of the full budget's: about the share ``loss`` of the ACR.

    ``votes`` pilot votes, of a stream of their own, choose n; then n fresh votes get the fixed-n bound, for which n
    is a constant because the pilot is independent of them. A small radius may be short by a larger share of it than a
    large one (by ``loss`` times the geometric mean of it and the largest possible radius, nearly): it adds less to
    the mean over inputs, and its last percent is the most expensive.
    """

    loss: float = 0.01
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        self.check_share(self.loss)
        super().__post_init__()

    def choose(self, forecast: RadiusForecast, pilot: Tally, chosen: int, n: int, block: int) -> int:
        """The fewest whose mean radius is near enough to that of n."""
        full = forecast.expected(pilot, chosen, n)
        short = _TOLERANCE * self.loss * math.sqrt(full * forecast.ceiling(n))
        return forecast.fewest(pilot, chosen, sizes(min(n, MINIMUM_VOTES), n, block, growth=1.06), short)


@BUDGETS.register("total")
@dataclass(frozen=True)
class Total(
    PilotedBudget,
    example="total:50000000",
    words="so many votes for all inputs together: see --total-votes",
    goal="mean radius",
    form=COUNT,
    needs_label=True,
):
    """``total`` votes for a whole data set, pilots included, spread so that the mean radius comes out largest.

    Pilots for all inputs first, then :func:`~smoothcert.smoothing.stopping.forecasts.allocate`, then fresh votes with
    the fixed-n bound.
    """

    MOST: ClassVar[int] = 16
    """No input gets more than this many times the plan's n: beyond, radii hardly grow."""
    total: int
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        check_count("total votes", self.total)
        super().__post_init__()

    @property
    def shared_votes(self) -> int:
        """The total."""
        return self.total

    def most_votes(self, n: int) -> int:
        """Several times the plan's n."""
        return n * self.MOST

    def check_inputs(self, inputs: int, n0: int) -> None:
        """Refuse a total that the pilots alone could use up."""
        needed = inputs * (n0 + self.votes)
        if self.total <= needed:
            raise InvalidValueError(
                f"{self.total} votes in all leave none to certify with: choosing classes and pilots take up to "
                f"{needed} for {inputs} inputs; give more votes, fewer inputs, or smaller pilots "
                f"(total:{self.total},100)"
            )


@STOP_RULES.register("decide")
@dataclass(frozen=True)
class Decide(
    FutilityRule, example="decide:0.5", words="is the radius at least 0.5?", goal="decision", form=NUMBER
):
    """Is the radius at least ``radius``? Yes once it is; no once it is hopeless (at level ``futility``)."""

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
class RadiusGrid(
    FutilityRule,
    example="grid:0,0.25,0.5",
    words="a table of certified accuracies at these radii",
    goal="decision",
    form=NUMBERS,
):
    """Between which of these radii is the radius? All that a table of certified accuracies needs.

    Radius 0 stands for any certificate at all, as in tables.
    """

    radii: tuple[float, ...]
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        if not self.radii:
            raise InvalidValueError(f"grid needs radii; write for example {self.example}")
        radii = tuple(check_not_negative("a radius of grid", radius) for radius in self.radii)
        object.__setattr__(self, "radii", radii)
        if any(a >= b for a, b in pairwise(radii)):
            raise InvalidValueError(f"the radii of grid must increase, got {', '.join(map(shortest, radii))}")
        super().__post_init__()

    def reason(self, state: VotingState) -> str | None:
        """Stop when every radius of the grid is reached or hopeless."""
        reached = [r for r in self.radii if _reached(state.radius, r)]
        if len(reached) == len(self.radii):
            return f"decided: radius at least {shortest(self.radii[-1])}"
        following = self.radii[len(reached)]
        if _reached(state.best_radius(self.futility), following):
            return None
        if reached:
            return f"decided: radius from {shortest(reached[-1])} to {shortest(following)}"
        return "hopeless: " + ("abstains" if following == 0 else f"radius below {shortest(following)}")


def _reached(radius: float, target: float) -> bool:
    return radius > 0 and radius >= target


@STOP_RULES.register("gain")
@dataclass(frozen=True)
class Gain(
    FutilityRule,
    example="gain:1%",
    words="until the full n would bring at most 1 % more; needs more votes than pilot",
    goal="mean radius",
    form=PERCENT,
):
    """The radius wouldn't grow by more than the share ``gain`` within the budget, if votes continue as they were."""

    gain: float
    futility: float = FUTILITY

    def __post_init__(self) -> None:
        self.check_share(self.gain)
        super().__post_init__()

    def reason(self, state: VotingState) -> str | None:
        """Compare with the radius that the full budget would bring; give up on what will abstain."""
        if state.radius == 0:
            return Abstain(self.futility).reason(state)
        if state.expected_radius() <= state.radius * (1 + self.gain):
            return f"settled: would gain at most {100 * self.gain:g} %"
        return None


@STOP_RULES.register("abstain")
@dataclass(frozen=True)
class Abstain(FutilityRule, example="abstain", words="give up where nothing will be certified", goal="any"):
    """The votes will hardly certify anything: abstain now."""

    futility: float = FUTILITY

    def reason(self, state: VotingState) -> str | None:
        """Stop when no positive radius can be expected."""
        hopeless = state.radius == 0 and state.best_radius(self.futility) == 0
        return "hopeless: abstains" if hopeless else None


@STOP_RULES.register("wrong")
@dataclass(frozen=True)
class Wrong(
    StopRule,
    example="wrong",
    words="no votes where the chosen class isn't the label; counted as abstained",
    goal="any",
    sees="selection",
    needs_label=True,
):
    """The chosen class isn't the label: whatever its radius, it counts nowhere. Looks at no estimation vote."""

    def reason(self, state: VotingState) -> str | None:
        """Compare with the label, before any estimation vote."""
        if state.label is None:
            raise InvalidValueError(
                "the stopping rule 'wrong' needs the label of every input; leave it out where labels are unknown"
            )
        if state.chosen == state.label:
            return None
        return f"wrong: candidate {state.chosen}, label {state.label}"
