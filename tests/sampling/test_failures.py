"""Errors of a pass name the inputs in it."""

from __future__ import annotations

import re

import pytest

from smoothcert.errors import ModelError
from smoothcert.sampling.failures import failure, naming


def test_one_input_or_some() -> None:
    for indices, named in (([3, 3], ["3"]), ([9, 3, 9], ["3", "9"])):
        told = str(failure("voting on {which}", indices, "no"))
        assert re.findall(r"\d+", told) == named
        assert told.startswith("voting on ")
        assert told.endswith(": no")
    assert str(failure("fitting", [9, 3], "no")) == "fitting: no"


def test_foreign_errors_keep_their_kind_and_ours_their_words() -> None:
    for error, told in (
        (KeyError("a"), "KeyError: 'a'"),
        (ModelError("no"), "no"),
        (SystemExit(0), "SystemExit: 0"),
    ):
        with pytest.raises(ModelError, match=rf"^voting .*\b1: {told}$"), naming("voting on {which}", [1]):
            raise error
