"""Options of the command line made from knobs: name, type, default and help are declared once, in a dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from cyclopts import Group, Parameter

from smoothcert.commands.written_knobs import choices
from smoothcert.errors import InvalidValueError
from smoothcert.knobs import Knob

_FORMER = "former_"

OptionField = tuple[str, Any, Any]
"""What :func:`dataclasses.make_dataclass` takes: name, annotated type and default."""


def option(knob: Knob, group: Group | None = None) -> OptionField:
    """An option that has the knob's default; a switch can be turned off too, by --no-…."""
    placed: dict[str, Any] = {} if group is None else {"group": group}
    kind = choices(*knob.choices) if knob.choices else knob.kind
    parameter = Parameter(
        name=[f"--{spelling}" for spelling in knob.spellings[:1]] or None,
        help=knob.help,
        # A tuple takes all the values that follow, and --no-… only makes sense for a switch.
        consume_multiple=typing.get_origin(without_none(kind)) is tuple,
        negative=None if without_none(kind) is bool else "",
        **placed,
    )
    return knob.name, Annotated[kind, parameter], knob.default


def optional(knob: Knob, group: Group | None = None) -> OptionField:
    """An option that is None unless given."""
    kind = choices(*knob.choices) if knob.choices else without_none(knob.kind)
    return option(dataclasses.replace(knob, kind=kind | None, default=None, choices=()), group)


def former(knob: Knob) -> list[OptionField]:
    """The knob's earlier spellings: accepted, not shown, None unless given."""
    kind = without_none(knob.kind) | None
    return [
        (f"{_FORMER}{knob.name}", Annotated[kind, Parameter(name=f"--{spelling}", show=False)], None)
        for spelling in knob.spellings[1:]
    ]


def under_their_names(options: Any) -> dict[str, Any]:
    """The options by field, those given in an earlier spelling included; both spellings at once are refused."""
    values = dict(vars(options))
    for name in [name for name in values if name.startswith(_FORMER)]:
        earlier, field = values.pop(name), name.removeprefix(_FORMER)
        if earlier is None:
            continue
        if values[field] != getattr(type(options)(), field):
            raise InvalidValueError(
                f"{field} is given more than once: {values[field]} and, by its earlier name, {earlier}; leave one out"
            )
        values[field] = earlier
    return values


def merged(knobs: Mapping[str, Iterable[Knob]]) -> list[Knob]:
    """The knobs of several classes, one for each name: the help says what it is in which class, and its default.

    One that means the same and has the same default in all of them names no class. In the order declared.
    """
    kinds: dict[str, Any] = {}
    texts: dict[str, dict[str, dict[str, Any]]] = {}
    for owner, each in knobs.items():
        for knob in each:
            kinds.setdefault(knob.name, without_none(knob.kind))
            texts.setdefault(knob.name, {}).setdefault(knob.help, {})[owner] = knob.default
    return [
        Knob(name, kinds[name], None, "; ".join(_told(text, who, len(knobs)) for text, who in told.items()))
        for name, told in texts.items()
    ]


def options_class(name: str, fields: Iterable[OptionField], module: str) -> Any:
    """A frozen dataclass of these options, which a command takes as one parameter."""
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__module__ = module  # cyclopts looks inside classes of the program's own modules only
    return Parameter(name="*")(made)


def sentence(knob: Knob) -> Knob:
    """The knob with its help as a sentence."""
    return dataclasses.replace(knob, help=f"{knob.help[:1].upper()}{knob.help[1:]}." if knob.help else "")


def given(options: Any, **more: Any) -> dict[str, Any]:
    """The options that were given, and ``more`` by name; those that weren't are None."""
    return {name: value for name, value in (vars(options) | more).items() if value is not None}


def without_none(kind: Any) -> Any:
    """The type without None."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(kind) if part is not type(None))
    return kind


def _told(text: str, who: Mapping[str, Any], owners: int) -> str:
    defaults = set(who.values())
    if len(who) == owners and owners > 1 and len(defaults) == 1:
        (default,) = defaults
        return text if default in (None, False) else f"{text} \\[{default}]"
    each = (
        owner if default in (None, dataclasses.MISSING) else f"{owner} {default}"
        for owner, default in who.items()
    )
    return f"{text} \\[{', '.join(each)}]"
