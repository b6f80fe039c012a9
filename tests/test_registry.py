"""Registries list what they hold when asked for what they don't."""

from __future__ import annotations

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.registry import Registry, unknown_name


def test_unknown_names_list_the_known_ones_and_guess() -> None:
    fruit: Registry[int] = Registry("fruit")
    fruit.register("apple")(1)
    fruit.register("pear")(2)
    assert fruit["pear"] == 2
    assert list(fruit) == ["apple", "pear"]
    assert "apple" in fruit
    with pytest.raises(
        InvalidValueError, match=r"unknown fruit 'aple'. Did you mean 'apple'\? Known: apple, pear"
    ):
        fruit["aple"]


def test_a_name_is_taken_once() -> None:
    fruit: Registry[int] = Registry("fruit")
    fruit.register("apple")(1)
    with pytest.raises(ValueError, match="registered twice"):
        fruit.register("apple")(2)


def test_a_long_list_is_cut_to_what_may_be_meant() -> None:
    names = [f"name-{number:02}" for number in range(31)]
    shown = str(unknown_name("thing", "name-7", names))
    assert "… (31 in all)" in shown
    assert "Did you mean 'name-" in shown
    assert shown.count("name-") < 8
    assert str(unknown_name("thing", "zzz", names)).endswith(
        "Known: name-00, name-01, name-02, … (31 in all)"
    )
    assert "in all" not in str(unknown_name("thing", "zzz", names[:30]))
