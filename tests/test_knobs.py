"""Knobs: dataclass fields that explain themselves, filled from plain values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, Optional

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.knobs import from_mapping, knob, knob_types, knobs_of


@dataclass(frozen=True)
class Oven:
    heat: float = knob(180.0, "degrees")
    minutes: int = knob(30, "how long")
    fan: bool = knob(False, "whether air moves")
    mode: Literal["top", "bottom"] = knob("top", "where from")
    name: str = ""
    limit: float | None = knob(None, "not above")
    shelf: Optional[int] = None  # noqa: UP045  (older spelling of the same)
    alarms: tuple[int, ...] = knob((), "when to ring")


def test_plain_values_fill_the_fields() -> None:
    made = from_mapping(
        Oven,
        {
            "heat": 200,
            "minutes": 5,
            "fan": True,
            "mode": "bottom",
            "limit": 250,
            "shelf": 2,
            "alarms": [1, 2],
        },
        "oven",
    )
    assert made == Oven(200.0, 5, True, "bottom", "", 250.0, 2, (1, 2))
    assert type(made.heat) is type(made.limit) is float
    assert type(made.alarms) is tuple


def test_nothing_given_is_all_defaults() -> None:
    assert from_mapping(Oven, {}, "oven") == Oven()


@pytest.mark.parametrize("name", ["limit", "shelf"])
def test_what_is_optional_may_be_none(name: str) -> None:
    assert getattr(from_mapping(Oven, {name: None}, "oven"), name) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heat", "200", "heat must be a number, got '200'"),
        ("heat", True, "heat must be a number, got True"),
        ("heat", None, "heat must be a number, got None"),
        ("minutes", 5.0, "minutes must be a whole number, got 5.0"),
        ("minutes", True, "minutes must be a whole number, got True"),
        ("fan", 1, "fan must be true or false, got 1"),
        ("fan", "yes", "fan must be true or false, got 'yes'"),
        ("name", 3, "name must be a text, got 3"),
        ("limit", "none", "limit must be a number, got 'none'"),
        ("limit", False, "limit must be a number, got False"),
        ("shelf", 1.5, "shelf must be a whole number, got 1.5"),
        ("alarms", 5, "alarms must be a list, got 5"),
        ("alarms", "12", "alarms must be a list, got '12'"),
        ("alarms", [1, 2.5], "alarms must be a whole number, got 2.5"),
        ("mode", "botom", "unknown mode 'botom'. Did you mean 'bottom'? Known: top, bottom"),
        ("mode", 1, "unknown mode '1'"),
        ("het", 1, "unknown knob of oven 'het'. Did you mean 'heat'?"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        from_mapping(Oven, {name: value}, "oven")
    assert message in str(caught.value)


def test_a_knob_has_a_default_and_a_line_of_help() -> None:
    texts = {knob.name: knob.help for knob in knobs_of(Oven)}
    assert Oven().heat == 180.0
    assert texts["heat"] == "degrees"
    assert texts["name"] == ""


def test_types_come_resolved_and_in_order() -> None:
    assert list(knob_types(Oven)) == [field.name for field in fields(Oven)]
    assert knob_types(Oven)["alarms"] == tuple[int, ...]
