"""Knobs: dataclass fields that explain themselves, filled from plain values."""

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


def test_plain_values_fill_the_fields():
    few = {"heat": 200, "minutes": 5, "fan": True, "mode": "bottom"}
    made = from_mapping(Oven, few | {"limit": 250, "shelf": 2, "alarms": [1, 2]}, "oven")
    assert made == Oven(200.0, 5, True, "bottom", "", 250.0, 2, (1, 2))
    assert type(made.heat) is type(made.limit) is float
    assert type(made.alarms) is tuple
    assert from_mapping(Oven, {}, "oven") == Oven()
    for name in ("limit", "shelf"):
        assert getattr(from_mapping(Oven, {name: None}, "oven"), name) is None


def test_a_wrong_value_is_named():
    for name, value, named in [
        ("heat", "200", "heat .*'200'"),
        ("heat", True, "heat .*True"),
        ("heat", None, "heat .*None"),
        ("minutes", 5.0, r"minutes .*5\.0"),
        ("minutes", True, "minutes .*True"),
        ("fan", 1, r"fan .*\b1\b"),
        ("fan", "yes", "fan .*'yes'"),
        ("name", 3, r"name .*\b3\b"),
        ("limit", "none", "limit .*'none'"),
        ("limit", False, "limit .*False"),
        ("shelf", 1.5, r"shelf .*1\.5"),
        ("alarms", 5, r"alarms .*\b5\b"),
        ("alarms", "12", "alarms .*'12'"),
        ("alarms", [1, 2.5], r"alarms .*2\.5"),
        ("mode", "botom", "mode .*'botom'.*'bottom'.*top, bottom"),
        ("mode", 1, "mode .*'1'.*top, bottom"),
        ("het", 1, "oven.*'het'.*'heat'"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            from_mapping(Oven, {name: value}, "oven")


def test_a_knob_has_a_default_a_line_of_help_and_a_resolved_type():
    texts = {knob.name: knob.help for knob in knobs_of(Oven)}
    assert Oven().heat == 180.0
    assert (texts["heat"], texts["name"]) == ("degrees", "")
    assert list(knob_types(Oven)) == [field.name for field in fields(Oven)]
    assert knob_types(Oven)["alarms"] == tuple[int, ...]
