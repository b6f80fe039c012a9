"""Frozen dataclasses whose fields are options: each explains itself, and can be read from a recipe or a command
line."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, Union

from smoothcert.errors import InvalidValueError
from smoothcert.registry import check_name, unknown_name

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Knob:
    """A field as the command line sees it: ``default`` is MISSING where there is none."""

    name: str
    kind: Any
    default: Any
    help: str = ""
    group: str = ""
    option: str = ""
    choices: str = ""


def knob(default: T, help: str, *, group: str = "", option: str = "", choices: str = "") -> T:
    """A dataclass field with its default and one line of help, which the command line and the docs show.

    ``group`` is the heading it stands under there; ``option`` is its name there where the field's own name means
    something else in other commands; ``choices`` names the registry whose names it takes, as ``module:REGISTRY``.
    """
    told = {"help": help, "group": group, "option": option, "choices": choices}
    return dataclasses.field(default=default, metadata=told)


def knobs_of(cls: type) -> list[Knob]:
    """The fields that the constructor takes, in order."""
    kinds = knob_types(cls)
    return [
        Knob(field.name, kinds[field.name], field.default, **field.metadata)
        for field in dataclasses.fields(cls)
        if field.init
    ]


def knob_types(cls: type) -> dict[str, Any]:
    """The resolved type of each field that the constructor takes, in order."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def from_mapping(
    cls: type[T], values: Mapping[str, object], kind: str, family: Mapping[str, type] | None = None
) -> T:
    """An instance of a dataclass from plain values, as TOML or JSON give them; a wrong one is named.

    Whole numbers stand for floats and lists for tuples; nothing else is converted. ``family``: others of its kind, by
    name, one of which may have the option that is meant.
    """
    expected = knob_types(cls)
    for name in values:
        if name not in expected:
            raise _unknown_knob(name, kind, list(expected), family or {})
    return cls(**{name: _checked(name, expected[name], value) for name, value in values.items()})


def _unknown_knob(name: str, kind: str, own: list[str], family: Mapping[str, type]) -> InvalidValueError:
    owners = sorted(other for other, each in family.items() if name in knob_types(each))
    if not owners:
        return unknown_name(f"option of {kind}", name, own or ["none"])
    there = f"; it has {', '.join(own)}" if own else ""
    return InvalidValueError(f"{kind} has no option {name!r}, which belongs to {' or '.join(owners)}{there}")


def written_values(text: str, what: str, *, switches: bool = False) -> Iterator[tuple[str, str]]:
    """Each NAME=VALUE of a text that has commas between them; ``switches``: a name alone stands for NAME=true."""
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals and not switches:
            raise InvalidValueError(f"{what}: write options as NAME=VALUE with commas between, got {part!r}")
        yield name.strip().replace("-", "_"), value.strip() if equals else "true"


def plain_value(text: str) -> object:
    """A value as TOML would read it, with bare words for texts."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return float(text)  # .5, which TOML doesn't take
    except ValueError:
        return text


def written(name: str, values: Mapping[str, object]) -> str:
    """``ladder:rungs=9,rescue=true``: the inverse of :func:`written_values` and :func:`plain_value`."""
    knobs = ",".join(
        f"{knob}={str(value).lower() if isinstance(value, bool) else value}" for knob, value in values.items()
    )
    return f"{name}:{knobs}" if knobs else name


def _checked(name: str, expected: Any, value: object) -> object:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _checked(name, inner, value)
    if origin is Literal:
        check_name(name, value, arguments)
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InvalidValueError(f"{name} must be a list, got {value!r}")
        return tuple(_checked(name, arguments[0], item) for item in value)
    if expected is float and type(value) is int:
        return float(value)
    if expected in _PLAIN and type(value) is not expected:
        raise InvalidValueError(f"{name} must be {_PLAIN[expected]}, got {value!r}")
    return value


_PLAIN = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
