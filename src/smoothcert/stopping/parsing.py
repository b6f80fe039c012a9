"""What ``--stop`` and a plan's ``stop`` hold: texts such as ``decide:0.5`` or ``pilot:1%``, or the rules themselves."""

from __future__ import annotations

from collections.abc import Iterable

from smoothcert.errors import InvalidValueError
from smoothcert.registry import unknown_name
from smoothcert.stopping.base import STOP_RULES, StopRule
from smoothcert.stopping.budgets import BUDGETS, Budget, FixedVotes

Stop = StopRule | Budget


def parse_stop(text: str) -> Stop:
    """``decide:0.5`` as a rule, ``pilot:1%`` as a budget; a mistake is named with an example of how it is written."""
    name, _, argument = text.strip().partition(":")
    if name in BUDGETS:
        return BUDGETS[name].parse(argument.strip())
    if name not in STOP_RULES:
        raise unknown_name("stopping rule", name, sorted([*STOP_RULES, *BUDGETS]))
    return STOP_RULES[name].parse(argument.strip())


def parse_stops(stops: Iterable[str | Stop] | str) -> tuple[Stop, ...]:
    """Rules and budgets in the order given; the plan's own n needs no mention. One kind may be named once."""
    given = [stops] if isinstance(stops, str) else list(stops)
    parsed = [parse_stop(each) if isinstance(each, str) else each for each in given]
    stated = tuple(each for each in parsed if not isinstance(each, FixedVotes))
    for position, each in enumerate(stated):
        if each.name in {earlier.name for earlier in stated[:position]}:
            raise InvalidValueError(f"the stopping rule {each.name!r} is given twice; give it once")
    budgets = [each for each in stated if isinstance(each, Budget)]
    looking = [rule for rule in stop_rules(stated) if rule.sees == "estimation"]
    if budgets and (looking or len(budgets) > 1):
        other = (looking or budgets[1:])[0]
        raise InvalidValueError(
            f"{budgets[0].name!r} fixes the number of votes beforehand and {other.name!r} doesn't leave it fixed: "
            "give one of them (wrong goes with either)"
        )
    return stated


def stop_rules(stated: Iterable[Stop]) -> tuple[StopRule, ...]:
    """The rules among what is stated."""
    return tuple(each for each in stated if isinstance(each, StopRule))


def budget_among(stated: Iterable[Stop]) -> Budget:
    """The budget among what is stated; the plan's n for every input where there is none."""
    return next((each for each in stated if isinstance(each, Budget)), FixedVotes())
