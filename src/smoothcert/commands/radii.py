"""Radii that commands report at: typed, or chosen without looking at the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.runs import Run


def chosen_radii(typed: str | None, runs: list[Run]) -> list[str]:
    """What was typed; else what the runs' plans allow; else, with a word of warning, what the results suggest."""
    from smoothcert.analysis.comparison import planned_radii
    from smoothcert.analysis.tables import default_radii, parse_radii
    from smoothcert.commands.console import note

    if typed is not None:
        return parse_radii(typed)
    planned = planned_radii(*runs)
    if planned is not None:
        return [f"{radius:g}" for radius in planned]
    note("no plan says how large radii could be, so the results chose which to look at; better give --radii")
    return default_radii(runs)
