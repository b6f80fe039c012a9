"""Votes as a journal states them: parsed without trusting them, and what is wrong with them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

SOFT_UNIT = 2**32
"""Soft votes are stated in multiples of 2⁻³²."""


class UnreadableError(ValueError):
    """A value that isn't of the kind it must be."""


@dataclass(frozen=True)
class Votes:
    """Counts of one stream's votes from ``start`` on; for soft votes also sums of probabilities and their squares."""

    seed: int
    index: int
    phase: str
    start: int
    counts: tuple[int, ...]
    sums: tuple[int, ...] | None = None
    squares: tuple[int, ...] | None = None

    @property
    def n(self) -> int:
        """Number of votes."""
        return sum(self.counts)

    @property
    def top(self) -> int:
        """The class ahead, ties to the lowest: by probability for soft votes, else by count."""
        score = self.counts if self.sums is None else self.sums
        return score.index(max(score))

    def stated(self) -> dict[str, Any]:
        """As a journal writes it."""
        fields: dict[str, Any] = {
            "seed": self.seed,
            "index": self.index,
            "phase": self.phase,
            "start": self.start,
            "counts": list(self.counts),
        }
        if self.sums is not None and self.squares is not None:
            fields |= {"sums": list(self.sums), "squares": list(self.squares)}
        return fields

    def impossible(self) -> list[str]:
        """Sums that no votes can have."""
        found = []
        if min(self.counts) < 0:
            found.append(f"a count of {min(self.counts)} {self.phase} votes")
        if self.sums is None or self.squares is None:
            return found
        if min(self.sums) < 0 or min(self.squares) < 0 or sum(self.sums) > self.n * SOFT_UNIT:
            found.append(f"probabilities of {self.phase} votes that add up to more than their number")
        # Sums were rounded down and squares up, vote by vote; s² ≤ s, and the mean square is at least the mean squared.
        for c, (total, square) in enumerate(zip(self.sums, self.squares)):
            if square > total + self.n or self.n * square * SOFT_UNIT < total * total:
                found.append(f"squares of class {c}'s {self.phase} votes that don't fit its sum")
        return found


def parse_votes(value: object) -> Votes:
    """Read a tally's JSON; UnreadableError says what is wrong with it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"votes that are no JSON ({error})") from None
    if not isinstance(value, dict):
        raise UnreadableError("votes that are no JSON object")
    phase = value.get("phase")
    if not isinstance(phase, str):
        raise UnreadableError(f"votes of the phase {phase!r}")
    soft = [_integers(value, name) if name in value else None for name in ("sums", "squares")]
    counts = _integers(value, "counts")
    if (soft[0] is None) != (soft[1] is None) or any(s is not None and len(s) != len(counts) for s in soft):
        raise UnreadableError("votes whose counts, sums and squares aren't of the same classes")
    return Votes(
        integer(value, "seed"),
        integer(value, "index"),
        phase,
        integer(value, "start"),
        counts,
        soft[0],
        soft[1],
    )


def optional_votes(value: object) -> Votes | None:
    """The same where there may be none."""
    return None if value is None else parse_votes(value)


def integer(fields: dict[str, Any], name: str) -> int:
    """A whole number; true and 1.0 aren't accepted."""
    value = fields.get(name)
    if type(value) is not int:
        raise UnreadableError(f"{name} = {value!r}, which is no whole number")
    return value


def _integers(fields: dict[str, Any], name: str) -> tuple[int, ...]:
    values = fields.get(name)
    if not isinstance(values, list) or not values or any(type(v) is not int for v in values):
        raise UnreadableError(f"{name} that aren't a list of whole numbers")
    return tuple(values)


def number(fields: dict[str, Any], name: str) -> float:
    """A number, infinity included."""
    value = fields.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.nan
        if not math.isnan(found):
            return found
    raise UnreadableError(f"{name} = {value!r}, which is no number")
