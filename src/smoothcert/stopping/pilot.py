"""A pilot chooses the number of votes of its input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from smoothcert.stopping.arguments import PERCENT, Form, check_share
from smoothcert.stopping.base import Goal
from smoothcert.stopping.budgets import BUDGETS, MINIMUM_VOTES, PILOT_VOTES, PilotedBudget
from smoothcert.stopping.looks import sizes
from smoothcert.stopping.radius_forecast import RadiusForecast
from smoothcert.tally import Tally

# Keeps the loss near `loss` on published distributions of p_A (benchmarks/adaptive_simulation.py).
_TOLERANCE = 0.7


@BUDGETS.register("pilot")
@dataclass(frozen=True)
class Pilot(PilotedBudget):
    """The fewest votes whose expected radius is hardly short of the full budget's: about the share ``loss`` of the ACR.

    ``votes`` pilot votes, of a stream of their own, choose n; then n fresh votes get the fixed-n bound, for which n
    is a constant because the pilot is independent of them. A small radius may be short by a larger share of it than a
    large one (by ``loss`` times the geometric mean of it and the largest possible radius, nearly): it adds less to
    the mean over inputs, and its last percent is the dearest.
    """

    name: ClassVar[str] = "pilot"
    example: ClassVar[str] = "pilot:1%"
    goal: ClassVar[Goal] = "mean radius"
    words: ClassVar[str] = (
        "1000 votes of another stream choose n, for about 1 % of the radius; pilot:1%,500 for 500 of them"
    )
    form: ClassVar[Form] = PERCENT
    loss: float = 0.01
    votes: int = PILOT_VOTES

    def __post_init__(self) -> None:
        check_share(self.name, self.loss)
        super().__post_init__()

    def choose(self, forecast: RadiusForecast, pilot: Tally, chosen: int, n: int, block: int) -> int:
        """The fewest whose mean radius is near enough to that of n."""
        full = forecast.expected(pilot, chosen, n)
        short = _TOLERANCE * self.loss * math.sqrt(full * forecast.ceiling(n))
        return forecast.fewest(pilot, chosen, sizes(min(n, MINIMUM_VOTES), n, block, growth=1.06), short)
