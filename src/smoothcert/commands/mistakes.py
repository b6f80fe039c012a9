"""Mistakes in a command's options, told by the parser, with our guess at what was meant."""

from __future__ import annotations

import re

from cyclopts import CoercionError, CycloptsError, CycloptsPanel
from rich.panel import Panel

from smoothcert.registry import closest

_GUESSED = "Did you mean"
_CHOICES = re.compile(r"Choose from: (.*)\.$", re.DOTALL)


def in_words(error: CycloptsError) -> str:
    """The parser's message; where a value is none of the choices and it has no guess, the one that may be meant."""
    message = str(error)
    listed = _CHOICES.search(message)
    if not isinstance(error, CoercionError) or error.token is None or listed is None or _GUESSED in message:
        return message
    guesses = closest(error.token.value, re.findall(r'"([^"]+)"', listed[1]))
    return f'{message} {_GUESSED} "{guesses[0]}"?' if guesses else message


def panel(error: CycloptsError) -> Panel:
    """As it is shown; the parser's own colours where there is nothing to add."""
    words = in_words(error)
    return CycloptsPanel(error if words == str(error) else words)
