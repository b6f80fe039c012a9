"""What a rule is, and how rules are written: ``decide:0.5``, ``grid:0,0.25``, ``pilot:1%``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, Protocol, TypeVar

from smoothcert.errors import InvalidValueError
from smoothcert.registry import Registry, unknown_name
from smoothcert.stopping.moment import Moment

Sees = Literal["selection", "estimation", "pilot"]
"""The votes that a rule looks at. Only one that looks at the estimation votes needs an anytime-valid bound."""

BUDGET = "budget"
"""The rule that every plan has: voting ends with the plan's last vote."""


class StopRule(Protocol):
    """A frozen description of when to stop; ``text`` is how plans and the command line write it."""

    name: ClassVar[str]
    sees: ClassVar[Sees]
    needs_label: ClassVar[bool]

    @property
    def text(self) -> str:
        """The rule as :func:`parse_rule` reads it."""
        ...

    @classmethod
    def parse(cls, argument: str) -> StopRule:
        """The rule that the text after the colon describes."""
        ...

    def reason(self, moment: Moment) -> str | None:
        """Why voting ends now ("word: details"), or None to go on."""
        ...


STOP_RULES: Registry[type[StopRule]] = Registry("stopping rule")

R = TypeVar("R", bound=type[StopRule])


def register(rule: R) -> R:
    """Put a rule on the list under its name."""
    STOP_RULES.register(rule.name)(rule)
    return rule


def parse_rule(text: str) -> StopRule:
    """``decide:0.5`` as a rule; a mistake is named with an example of how it is written."""
    name, _, argument = text.strip().partition(":")
    if name not in STOP_RULES:
        raise unknown_name("stopping rule", name, [BUDGET, *STOP_RULES.names()])
    return STOP_RULES[name].parse(argument.strip())


def parse_rules(rules: Iterable[str | StopRule] | str) -> tuple[StopRule, ...]:
    """Rules from texts or rules; the budget needs no mention. One kind of rule may be named once."""
    given = [rules] if isinstance(rules, str) else list(rules)
    parsed = [parse_rule(r) if isinstance(r, str) else r for r in given if r != BUDGET]
    for position, rule in enumerate(parsed):
        if rule.name in {earlier.name for earlier in parsed[:position]}:
            raise InvalidValueError(f"the stopping rule {rule.name!r} is given twice; give it once")
    staged = [rule for rule in parsed if rule.sees == "pilot"]
    looking = [rule for rule in parsed if rule.sees == "estimation"]
    if staged and (looking or len(staged) > 1):
        other = (looking or staged[1:])[0]
        raise InvalidValueError(
            f"{staged[0].name!r} fixes the number of votes beforehand and {other.name!r} doesn't leave it fixed: "
            "give one of them (wrong goes with either)"
        )
    return tuple(parsed)


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
    """Refuse a percentage that is none."""
    if not 0 < value < 1:
        raise InvalidValueError(f"{rule} needs a percentage between 0 and 100, got {100 * value:g}%")


def no_argument(rule: Callable[[], StopRule], name: str, argument: str) -> StopRule:
    """For rules without knobs."""
    if argument:
        raise InvalidValueError(f"{name} takes no value, got {argument!r}; write {name}")
    return rule()


def shortest(value: float) -> str:
    """A number as people write it: 0.5, 1, 1e-06."""
    return repr(int(value)) if value == int(value) else repr(value)
