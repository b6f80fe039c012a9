"""The blanket, by hand, and ladders."""

from __future__ import annotations

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.noise_fit import blanket, starting_constants


def test_the_blanket_by_hand() -> None:
    points = [
        (0.0, 0.99),  # most accurate: kept, range [0, 0]
        (5.0, 0.97),  # outside on the right: kept, range [0, 5]
        (3.0, 0.95),  # between two better ones: goes
        (-2.0, 0.90),  # outside on the left: kept, range [-2, 5]
        (9.0, 0.80),  # outside: kept, range [-2, 9]
        (8.0, 0.70),  # inside: goes
        (5.0, 0.60),  # on a point that is kept: goes
    ]
    assert blanket(points) == [0, 1, 3, 4]
    order = [4, 6, 0, 5, 2, 1, 3]
    assert [order[k] for k in blanket([points[k] for k in order])] == [0, 1, 3, 4]


def test_the_blanket_of_little() -> None:
    assert blanket([]) == []
    assert blanket([(1.0, 0.5)]) == [0]
    # Equally accurate: the larger area first; the other one is outside its range still.
    assert blanket([(1.0, 0.5), (2.0, 0.5)]) == [1, 0]


def test_starting_constants() -> None:
    assert starting_constants("0.5") == [0.5]
    assert starting_constants("0.1,0.5") == [0.1, 0.5]
    assert starting_constants("0.1:1.0:0.1") == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert starting_constants("0.01:0.035:0.01") == [0.01, 0.02, 0.03]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("0", r"\b0\b"),
        ("-1", "-1"),
        ("nan", r"\bnan\b"),
        ("0.0:1:0.5", r"\b0\b"),
        ("1:0.5:0.1", r"FIRST:LAST:STEP.*'1:0\.5:0\.1'"),
        ("0.1:1:0", r"FIRST:LAST:STEP.*'0\.1:1:0'"),
        ("0.1:1", r"FIRST:LAST:STEP.*'0\.1:1'"),
        ("much", "FIRST:LAST:STEP.*'much'"),
        ("0.1,0.1", r"'0\.1,0\.1'"),
        ("0.001:1:0.001", r"'0\.001:1:0\.001'.*\b1000\b.*\b200\b"),
    ],
)
def test_starting_constants_that_make_no_sense(spec: str, named: str) -> None:
    with pytest.raises(InvalidValueError, match=f"init.*{named}"):
        starting_constants(spec)
