import numpy as np
import pytest

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError


def small(**changes: object) -> Dataset:
    fields: dict[str, object] = {
        "name": "small",
        "stored": np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2),
        "labels": np.array([0, 1, 0]),
        "classes": ("a", "b"),
        "scale": 0.5,
    }
    return Dataset(**{**fields, **changes})  # type: ignore[arg-type]


def test_inputs_are_scaled_float32():
    dataset = small()
    assert len(dataset) == 3
    assert dataset.input_shape == (1, 2, 2)
    batch = dataset.inputs([2, 0])
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch[:, 0], [[[4, 4.5], [5, 5.5]], [[0, 0.5], [1, 1.5]]])
    np.testing.assert_array_equal(dataset.input(2), batch[0])
    np.testing.assert_array_equal(dataset.inputs(slice(1, 3)), dataset.inputs(np.array([1, 2])))


def test_taking_inputs_leaves_the_stored_values_alone():
    dataset = small(stored=np.ones((3, 2), np.float32), scale=1.0)
    dataset.inputs(slice(None))[:] = 7
    dataset.input(0)[:] = 7
    assert (dataset.stored == 1).all()


def test_senseless_places_and_scales_are_refused():
    for index in (-1, 3):
        with pytest.raises(InvalidValueError, match=rf"small.*index.*0\.\.2.*{index}\b"):
            small().input(index)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidValueError, match=f"small.*scale.*{scale}"):
            small(scale=scale)


def test_senseless_data_is_refused():
    for changes, named in [
        ({"stored": np.empty((0, 2)), "labels": np.empty(0, np.int64)}, ""),
        ({"stored": np.zeros(3)}, r"\(3,\)"),
        ({"stored": np.zeros((3, 0))}, r"\(3, 0\)"),
        ({"labels": np.array([0, 1])}, r"\b3\b.*\b2\b"),
        ({"labels": np.array([0, 2, 0])}, r"label.*\b2\b.*\b1\b.*0\.\.1"),
        ({"labels": np.array([0, 1, -1])}, r"label.*-1\b.*\b2\b.*0\.\.1"),
        ({"labels": np.array([0.0, 1.0, 0.0])}, "labels.*float64"),
        ({"labels": np.array([[0], [1], [0]])}, r"labels.*\(3, 1\)"),
    ]:
        with pytest.raises(DataError, match=f"small.*{named}"):
            small(**changes)


def test_fingerprint_is_of_the_contents():
    original = small()
    assert original.fingerprint() == small(name="other").fingerprint()
    strided, labels = np.asfortranarray(original.stored), original.labels.astype(np.uint8)
    assert small(stored=strided, labels=labels).fingerprint() == original.fingerprint()
    changed = original.stored.copy()
    changed[0, 0, 0, 0] = 9
    different = [
        small(stored=changed),
        small(stored=original.stored.reshape(3, 4)),
        small(stored=original.stored.astype(np.float32)),
        small(labels=np.array([1, 0, 0])),
        small(scale=0.25),
    ]
    assert len({dataset.fingerprint() for dataset in [original, *different]}) == 1 + len(different)
