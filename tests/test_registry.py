"""Registries list what they hold when asked for what they don't."""

from __future__ import annotations

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.registry import Registry


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
