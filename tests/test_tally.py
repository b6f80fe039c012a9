"""Tallies add only what follows in the same stream."""

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.tally import Phase, Stream, Tally

STREAM = Stream(0, 7, Phase.ESTIMATION)


def test_consecutive_votes_add():
    total = Tally(STREAM, 0, 3, (2, 1)) + Tally(STREAM, 3, 5, (0, 2))
    assert total == Tally(STREAM, 0, 5, (2, 3))
    assert total.n == 5
    total = Tally(STREAM, 0, 1, (1, 0), (3, 1), (2, 1)) + Tally(STREAM, 1, 2, (0, 1), (1, 3), (1, 2))
    assert (total.sums, total.squares) == ((4, 4), (3, 3))
    with pytest.raises(InvalidValueError, match=r"\b4\b.*\b3\b"):
        Tally(STREAM, 0, 4, (2, 1))


def test_anything_else_is_refused():
    for other, named in [
        (Tally(Stream(0, 7, Phase.SELECTION), 3, 4, (1, 0)), "Phase.ESTIMATION.*Phase.SELECTION"),
        (Tally(Stream(0, 8, Phase.ESTIMATION), 3, 4, (1, 0)), "index=7.*index=8"),
        (Tally(Stream(1, 7, Phase.ESTIMATION), 3, 4, (1, 0)), "seed=0.*seed=1"),
        (Tally(STREAM, 2, 3, (1, 0)), r"2\.\.3\b.*0\.\.3\b"),
        (Tally(STREAM, 4, 5, (1, 0)), r"4\.\.5\b.*0\.\.3\b"),
        (Tally(STREAM, 3, 4, (1, 0, 0)), r"\b2\b.*\b3\b"),
        (Tally(STREAM, 3, 4, (1, 0), (1, 0), (1, 0)), "soft"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            Tally(STREAM, 0, 3, (2, 1)) + other


def test_top_goes_by_sums_for_soft_votes_and_ties_to_the_lowest():
    assert Tally(STREAM, 0, 4, (1, 2, 1)).top() == 1
    assert Tally(STREAM, 0, 4, (2, 2, 0)).top() == 0
    assert Tally(STREAM, 0, 2, (2, 0), (3, 5), (1, 1)).top() == 1


def test_json_round_trip():
    for tally in (Tally(STREAM, 2, 5, (2, 1)), Tally(STREAM, 0, 1, (1, 0), (2**32, 0), (2**32, 0))):
        assert Tally.from_json(tally.as_json()) == tally
