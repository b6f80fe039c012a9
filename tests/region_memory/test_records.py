"""Stored answers as bytes: exact for every shape, and for balls what they have always been."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from smoothcert.region_memory import RegionMemory, StoredAnswer
from smoothcert.region_memory.chain import next_row
from smoothcert.region_memory.errors import IncompleteMemoryError
from smoothcert.region_memory.records import decode, decode_parts
from smoothcert.regions import CertifiedRegion, CrossPolytope, Ellipsoid, L1Ball, L2Ball
from tests.region_memory.toys import ListStore, statement


@pytest.mark.parametrize(("kind", "name"), [(L2Ball, "l2"), (L1Ball, "l1")])
def test_the_bytes_of_a_ball_are_those_of_stores_that_exist(kind: type[L2Ball], name: str) -> None:
    stored = StoredAnswer(1, kind(np.array([0.5, -1.25]), 0.75), {"sigma": 0.5})
    header = (
        f'{{"class": 1, "kind": "{name}", "radius": "0x1.8000000000000p-1", "dtype": "<f4", '
        '"facts": {"sigma": 0.5}}\n'
    )
    assert stored.encode() == header.encode() + struct.pack("<2f", 0.5, -1.25)
    third = StoredAnswer(0, kind(np.array([1 / 3, 0.0]), 0.75))
    assert third.encode().endswith(b'"dtype": "<f8", "facts": {}}\n' + struct.pack("<2d", 1 / 3, 0.0))


@pytest.mark.parametrize("kind", [Ellipsoid, CrossPolytope])
@pytest.mark.parametrize("center", [np.array([[0.5, 1.0, 2.0]]), np.array([[1 / 3, 1.0, 1e-80]])])
def test_axes_come_back_exactly(kind: type[Ellipsoid], center: np.ndarray) -> None:
    axes = np.array([[1 / 3, 1e-90, 7.0]])
    about = statement((1, 3), kind.norm)
    payload = StoredAnswer(2, kind(center, axes), {"a": 1}).encode()
    found = decode(payload, about)
    assert type(found.region) is kind
    assert (found.predicted, found.facts) == (2, {"a": 1})
    assert np.array_equal(found.region.center, center)
    assert np.array_equal(found.region.axes, axes.ravel())
    header, flat = decode_parts(payload, about)
    assert header.radius == 7.0  # the reach by which look-ups rule it out
    assert np.array_equal(flat, center.ravel())


def test_records_that_make_no_sense_are_refused() -> None:
    body: CertifiedRegion = Ellipsoid(np.zeros(2), np.array([1.0, 2.0]))
    payload = StoredAnswer(0, body).encode()
    with pytest.raises(ValueError, match="'ellipsoid'"):
        decode(payload, statement((2,), "l1"))
    with pytest.raises(ValueError, match=r"\b0\b.*\b3\b"):
        decode(payload, statement((3,), "l2"))
    with pytest.raises(ValueError, match=r"\b0\b.*\b2\b"):
        decode(payload[:-8], statement((2,), "l2"))
    for axes in ((1.0, 3.0), (-1.0, 2.0), (float("nan"), 2.0)):
        with pytest.raises(ValueError, match="axes"):
            decode(payload[:-16] + struct.pack("<2d", *axes), statement((2,), "l2"))


def test_a_store_with_such_a_record_is_not_opened() -> None:
    store = ListStore(statement((2,), "l2"))
    payload = StoredAnswer(0, Ellipsoid(np.zeros(2), np.array([1.0, 2.0]))).encode()
    store.append(next_row(store.head(), payload[:-8] + struct.pack("<d", 5.0)))
    with pytest.raises(IncompleteMemoryError, match=r"\b1\b.*axes"):
        RegionMemory(store)
