"""Options that decide how many votes an input gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from smoothcert.commands.written_knobs import members

_STOP = Group("Fewer votes, same guarantee", sort_key=3)


def _written(goal: str) -> str:
    """How rules and budgets for a goal are written, and what they do."""
    stated = [
        one for registry in ("STOP_RULES", "BUDGETS") for one in members("smoothcert.stopping", registry)
    ]
    return ", ".join(
        f"**{one.variable('example')}** ({one.variable('words')})"
        for one in stated
        if one.variable("goal") == goal
    )


@Parameter(name="*", group=_STOP)
@dataclass(frozen=True)
class StopOptions:
    """When to stop voting on an input."""

    stop: Annotated[
        list[str] | None,
        Parameter(
            help="Fewer votes, same guarantee: pilot:1% for the mean radius, decide:0.5 for a decision. Says when an "
            "input has had enough votes; may be given several times, the first reason counts.\n\n"
            f"For a decision: {_written('decision')}. Radii stop growing once the question is answered: don't take "
            "their mean.\n\n"
            f"For the mean radius: {_written('mean radius')}.\n\n"
            f"With any: {_written('any')}.",
        ),
    ] = None
    total_votes: int | None = None
    """Votes for all inputs together, spread so that the mean radius comes out largest: pilots find out where votes pay,
    inputs whose class is wrong get none. An input may get up to 16 n votes."""

    def stops(self) -> tuple[str, ...]:
        """Stop rules and budget as the plan takes them."""
        from smoothcert.errors import check_count

        total = self.total_votes
        if total is not None:
            check_count("total votes", total)
        return (*(self.stop or ()), *(() if total is None else (f"total:{total}",)))
