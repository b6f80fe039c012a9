"""Registries list what they hold when asked for what they don't."""

import re

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.registry import Registry, unknown_name


def test_unknown_names_list_the_known_ones_and_guess():
    fruit: Registry[int] = Registry("fruit")
    fruit.register("apple")(1)
    fruit.register("pear")(2)
    assert fruit["pear"] == 2
    assert list(fruit) == ["apple", "pear"]
    assert "apple" in fruit
    with pytest.raises(InvalidValueError, match=r"fruit 'aple'.*'apple'.*apple, pear"):
        fruit["aple"]
    with pytest.raises(ValueError, match="fruit 'apple'"):
        fruit.register("apple")(2)


def test_a_long_list_is_cut_to_what_may_be_meant():
    names = [f"name-{number:02}" for number in range(31)]
    shown = str(unknown_name("thing", "name-7", names))
    assert "31" in shown
    assert {"name-07", "name-17", "name-27"} & set(re.findall(r"'(name-\d\d)'", shown)), "a guess"
    assert shown.count("name-") < 8
    far = str(unknown_name("thing", "zzz", names))
    assert "name-00, name-01, name-02, …" in far
    assert "31" in far
    assert all(name in str(unknown_name("thing", "zzz", names[:30])) for name in names[:30])
