"""Stored answers as bytes, exact for every shape; the prefilter may include too much and never too little."""

import struct

import numpy as np
import pytest

from smoothcert.regions.bodies import CertifiedRegion, CrossPolytope, Ellipsoid, L1Ball, L2Ball
from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.memory_ledger import SketchIndex, StoredAnswer, decode, decode_parts
from smoothcert.smoothing.stores.base import IncompleteMemoryError, next_row
from tests.smoothing.memory.toys import ListStore, statement


@pytest.mark.parametrize(("kind", "name"), [(L2Ball, "l2"), (L1Ball, "l1")])
def test_the_bytes_of_a_ball_are_those_of_stores_that_exist(kind, name):
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
def test_axes_come_back_exactly(kind, center):
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


def test_records_that_make_no_sense_are_refused():
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


def test_a_store_with_such_a_record_is_not_opened():
    store = ListStore(statement((2,), "l2"))
    payload = StoredAnswer(0, Ellipsoid(np.zeros(2), np.array([1.0, 2.0]))).encode()
    store.append(next_row(store.head(), payload[:-8] + struct.pack("<d", 5.0)))
    with pytest.raises(IncompleteMemoryError, match=r"\b1\b.*axes"):
        RegionMemory(store)


@pytest.mark.parametrize("shape", [(1,), (3,), (100,), (28, 28), (3, 32, 32), (20, 4, 4), (1, 7, 3)])
def test_nothing_within_reach_is_left_out(shape):
    for scale in (1e-60, 1e-20, 1e-3, 1.0, 1e4, 1e18, 3e18, 1e19, 2e19, 1e37, 1e38, 1e60):
        check_reach(shape, scale)


def check_reach(shape: tuple[int, ...], scale: float) -> None:
    rng = np.random.default_rng(1)
    size = int(np.prod(shape))
    index = SketchIndex(shape)
    base = rng.random(size) * scale
    # Neighbours at exactly the threshold, smooth or rough, of a vector that is long compared with it.
    shifts = rng.normal(size=(300, size))
    shifts[:100] = 1.0
    shifts[100:120] = np.eye(size)[rng.integers(size, size=20)]
    shifts /= np.linalg.norm(shifts, axis=1, keepdims=True)
    lengths = scale * 10.0 ** rng.uniform(-12, 1, size=300)
    points = base + shifts * lengths[:, np.newaxis]
    exact = np.linalg.norm((points - base).astype(np.longdouble), axis=1)
    reaches = np.maximum((exact * rng.uniform(0, 1, size=300)).astype(np.float64), 1e-100)
    index.add(points, reaches)
    for position in range(0, 300, 7):
        rest = float(np.nextafter(float(exact[position]) - reaches[position], np.inf)) * (1 + 1e-15)
        found = set(index.near(base, max(rest, 0.0)).tolist())
        assert {i for i in range(300) if exact[i] < reaches[i] + rest} <= found, scale


def test_it_rules_out_what_is_far_away_and_counts_on_from_a_start():
    rng = np.random.default_rng(2)
    index = SketchIndex((1, 14, 14))
    smooth = np.repeat(np.repeat(rng.random((70_000, 7, 7)), 2, axis=1), 2, axis=2).reshape(70_000, -1)
    index.add(smooth[:65_000], np.full(65_000, 0.5))
    index.add(smooth[65_000:], np.full(5_000, 0.5))
    assert len(index) == 70_000
    assert index.nbytes < 2 * 65_536 * 300
    for position in (0, 64_999, 65_535, 65_536, 69_999):
        assert index.near(smooth[position], 0.5).tolist() == [position]
        assert index.near(smooth[position], 0.5, start=position).tolist() == [position]
        assert index.near(smooth[position], 0.5, start=position + 1).tolist() == []
