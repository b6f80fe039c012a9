"""Errors of a pass name the inputs in it."""

from __future__ import annotations

import pytest

from smoothcert.errors import ModelError
from smoothcert.sampling.failures import failure, naming


def test_one_input_or_some() -> None:
    assert str(failure("voting on {which}", [3, 3], "no")) == "voting on input 3: no"
    assert str(failure("voting on {which}", [9, 3, 9], "no")) == "voting on one of the inputs [3, 9]: no"
    assert str(failure("fitting", [9, 3], "no")) == "fitting: no"


def test_foreign_errors_keep_their_kind_and_ours_their_words() -> None:
    with (
        pytest.raises(ModelError, match=r"^voting on input 1: KeyError: 'a'$"),
        naming("voting on {which}", [1]),
    ):
        {}["a"]
    with pytest.raises(ModelError, match=r"^voting on input 1: no$"), naming("voting on {which}", [1]):
        raise ModelError("no")
    with (
        pytest.raises(ModelError, match=r"^voting on input 1: SystemExit: 0$"),
        naming("voting on {which}", [1]),
    ):
        raise SystemExit(0)
