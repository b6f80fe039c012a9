"""What stands after the colon of a stop rule's or a budget's text: numbers, percentages, counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InvalidValueError


def number(rule: str, text: str, example: str) -> float:
    """A finite number in a rule's text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidValueError(f"{rule} needs a number, got {text!r}; write for example {example}")
    return value


def percent(rule: str, text: str, example: str) -> float:
    """``1%`` as 0.01; a share strictly between 0 and 1."""
    if not text.endswith("%"):
        raise InvalidValueError(f"{rule} needs a percentage, got {text!r}; write for example {example}")
    return number(rule, text.removesuffix("%"), example) / 100


def count(rule: str, text: str, example: str) -> int:
    """A whole number, perhaps with underscores or an exponent (5e6)."""
    value = number(rule, text, example)
    if value != int(value):
        raise InvalidValueError(f"{rule} needs a whole number, got {text!r}; write for example {example}")
    return int(value)


def check_share(rule: str, value: float) -> None:
    """Refuse a percentage outside (0, 100)."""
    if not 0 < value < 1:
        raise InvalidValueError(f"{rule} needs a percentage between 0 and 100, got {100 * value:g}%")


def shortest(value: float) -> str:
    """A number in its usual notation: 0.5, 1, 1e-06."""
    return repr(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True)
class Form:
    """How a value is read, given the rule's name, its text and an example, and how it is written."""

    read: Callable[[str, str, str], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True)
class Tail:
    """A last field that is written behind a ``sign`` where it isn't the usual one, as after the rule's ``example``."""

    sign: str
    usual: Any
    read: Callable[[str, str, str], Any]
    example: str


NUMBER = Form(number, shortest)
PERCENT = Form(percent, lambda share: f"{100 * share:.12g}%")
COUNT = Form(count, str)
NUMBERS = Form(
    lambda rule, text, example: tuple(number(rule, one, example) for one in text.split(",")),
    lambda numbers: ",".join(map(shortest, numbers)),
)
