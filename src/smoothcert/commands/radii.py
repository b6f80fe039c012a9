"""Radii that commands report at: typed, or chosen without looking at the results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothcert.runs import Run


_OPTION = "--radii"
_NUMBERS = re.compile(r"[0-9.][0-9.,eE+-]*")


def joined_radii(words: list[str]) -> list[str]:
    """The words of a command with ``--radii 0 0.5`` written as ``--radii 0,0.5``: both mean the same everywhere.

    A number after a list with commas is no radius: it may be the name of a run.
    """
    joined: list[str] = []
    ahead = list(words)
    while ahead:
        word = ahead.pop(0)
        if word == "--":
            return [*joined, word, *ahead]
        option, equals, value = word.partition("=")
        if option != _OPTION or not (equals or ahead):
            joined.append(word)
            continue
        value = value if equals else ahead.pop(0)
        listed = "," in value.rstrip(",")
        while ahead and _NUMBERS.fullmatch(ahead[0]) and (value.endswith(",") or not listed):
            value = f"{value.removesuffix(',')},{ahead.pop(0)}"
        joined += [_OPTION, value]
    return joined


def chosen_beforehand(typed: str | None, runs: list[Run]) -> list[str] | None:
    """The radii given, else those that the runs' plans allow; None where only the results could choose."""
    from smoothcert.analysis.comparison import planned_radii
    from smoothcert.analysis.tables import parse_radii

    if typed is not None:
        return parse_radii(typed)
    planned = planned_radii(*runs)
    return None if planned is None else [f"{radius:g}" for radius in planned]
