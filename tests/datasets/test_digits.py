from __future__ import annotations

import sys

import numpy as np
import pytest

from smoothcert.datasets import load
from smoothcert.errors import MissingExtraError


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r"digits.*scikit-learn.*smoothcert\[quickstart\]"):
        load("digits")


def test_split_is_the_documented_one() -> None:
    bundled = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1297, 500)
    np.testing.assert_array_equal(np.concatenate([train.stored, test.stored])[:, 0], bundled.images)
    np.testing.assert_array_equal(np.concatenate([train.labels, test.labels]), bundled.target)


def test_units_and_classes() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    test = load("digits")
    assert test.name == "digits"
    assert test.input_shape == (1, 8, 8)
    assert test.stored.dtype == np.uint8
    assert test.scale == 1 / 16
    batch = test.inputs(slice(None))
    assert (batch.min(), batch.max()) == (0, 1)
    assert test.classes == tuple("0123456789")
    assert np.bincount(test.labels).min() == 46
    assert np.bincount(test.labels).max() == 51
