"""Numerics: validation and how open fields are settled."""

from __future__ import annotations

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Numerics


@pytest.mark.parametrize(
    ("asked", "rows", "shape"),
    [
        (Numerics(), 1024, (16, 64)),
        (Numerics(), 9999, (16, 64)),
        (Numerics(), 64, (1, 64)),
        (Numerics(), 8, (1, 8)),
        (Numerics(chunk=100), 64, (2, 50)),
        (Numerics(chunk=96, block=32), 64, (3, 32)),
        (Numerics(chunk=1), 64, (1, 1)),
    ],
)
def test_settling(asked: Numerics, rows: int, shape: tuple[int, int]) -> None:
    settled = asked.settled("eager", rows)
    assert settled.shape() == shape
    assert settled.route == "eager"
    assert settled.settled("eager", 0) == settled


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "int8"}, "unknown dtype 'int8'.*float32"),
        ({"route": "fast"}, "unknown route 'fast'.*eager"),
        ({"chunk": 0}, "chunk must be an integer of at least 1"),
        ({"chunk": 100, "block": 64}, "multiple of block"),
        ({"block": 64}, "multiple of block"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Numerics(**fields)  # type: ignore[arg-type]


def test_open_numerics_have_no_shape() -> None:
    with pytest.raises(InvalidValueError, match="settled"):
        Numerics().shape()
