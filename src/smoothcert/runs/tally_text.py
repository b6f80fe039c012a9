"""A tally's JSON as :func:`json.dumps` writes it, recognised undecoded: a page may be about a million of them."""

from __future__ import annotations

import re

from smoothcert.tally import Phase

_NUMBER = "(?:0|[1-9][0-9]*)"
_NUMBERS = rf"\[({_NUMBER}(?:, {_NUMBER})*)\]"
_PHASES = "|".join(phase.name.lower() for phase in Phase)
_TEXT = re.compile(
    rf'\{{"seed": {_NUMBER}, "index": {_NUMBER}, "phase": "(?:{_PHASES})", "start": {_NUMBER}, "counts": {_NUMBERS}'
    rf'(?:, "sums": {_NUMBERS}, "squares": {_NUMBERS})?\}}'
)


def is_plain(text: str) -> bool:
    """Whether it is, to the letter, what the tally that it decodes to would be written as."""
    return _TEXT.fullmatch(text) is not None


def plain_scores(text: str) -> tuple[list[int], list[int] | None] | None:
    """The counts and, of soft votes, the sums of a plain text; None for any other."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    counts, sums, _ = found.groups()
    return _whole(counts), None if sums is None else _whole(sums)


def _whole(numbers: str) -> list[int]:
    return list(map(int, numbers.split(", ")))
