"""Radii that commands report at: typed, or chosen without looking at the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.runs import Run


def chosen_beforehand(typed: str | None, runs: list[Run]) -> list[str] | None:
    """The radii given, else those that the runs' plans allow; None where only the results could choose."""
    from smoothcert.analysis.comparison import planned_radii
    from smoothcert.analysis.tables import parse_radii

    if typed is not None:
        return parse_radii(typed)
    planned = planned_radii(*runs)
    return None if planned is None else [f"{radius:g}" for radius in planned]
