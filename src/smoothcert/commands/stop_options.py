"""Options that decide how many votes an input gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

_STOP = Group("Fewer votes, same guarantee", sort_key=3)


@Parameter(name="*")
@dataclass(frozen=True)
class StopOptions:
    """When to stop voting on an input."""

    stop: Annotated[
        list[str] | None,
        Parameter(
            group=_STOP,
            negative="",
            help="When an input has had enough votes; may be given several times, the first reason counts.\n\n"
            "For a decision: **decide:0.5** (is the radius at least 0.5?) or **grid:0,0.25,0.5** (a table of certified "
            "accuracies at these radii). Radii stop growing once the question is answered: don't take their mean.\n\n"
            "For the mean radius: **pilot:1%** (1000 votes of another stream choose n, for about 1 % of the radius; "
            "pilot:1%,500 for 500 of them). **gain:1%** (until the full n would bring at most 1 % more) needs more "
            "votes.\n\n"
            "With any: **wrong** (no votes where the chosen class isn't the label; counted as abstained), **abstain** "
            "(give up where nothing will be certified).\n\n"
            "Default: **budget**, n votes for every input, as in the papers.",
        ),
    ] = None
    total_votes: Annotated[
        int | None,
        Parameter(
            group=_STOP,
            help="Votes for all inputs together, spread so that the mean radius comes out largest: pilots find out "
            "where votes pay, inputs whose class is wrong get none. An input may get up to 16 n votes.",
        ),
    ] = None

    def stops(self) -> tuple[str, ...]:
        """Stop rules and budget as the plan takes them."""
        from smoothcert.errors import check_count

        total = self.total_votes
        if total is not None:
            check_count("total votes", total)
        return (*(self.stop or ()), *(() if total is None else (f"total:{total}",)))
