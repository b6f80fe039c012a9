"""Ranks and half-widths of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.noise_fit import feature_names
from smoothcert.noise_fit.features import ranked_features
from smoothcert.regions import Ellipsoid


def test_ranks_are_free_of_units() -> None:
    start = np.array([100.0, 0.1, 1.0, 1.0])
    found = ranked_features(start * np.array([2.0, 0.5, 1.0, 1.0]), start, ["a", "b", "c", "d"])
    assert [(feature.name, feature.rank) for feature in found] == [("b", 1), ("c", 2), ("d", 2), ("a", 4)]
    assert found[0].half_width is None
    assert found[0].factor == pytest.approx(0.5)


def test_half_widths_are_those_of_the_region() -> None:
    sigmas, gap = np.array([[0.5, 2.0], [0.1, 1.0]]), 1.7
    region = Ellipsoid(np.zeros((2, 2)), gap * sigmas)
    for feature in ranked_features(sigmas, np.ones((2, 2)), reach=region.volume_radius):
        direction = np.zeros((2, 2))
        direction[feature.place] = 1.0
        assert feature.half_width == pytest.approx(region.half_width(direction), rel=1e-9)
        assert feature.name == str(feature.place)


def test_names_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((2, 2)), y=np.zeros(2), feature_names=np.array(["é", "b"]))
    assert feature_names(str(path)) == feature_names(f"npz:{path}") == ["é", "b"]
    np.savez(path, x=np.zeros((2, 2)), y=np.zeros(2))
    assert feature_names(str(path)) is None
    assert feature_names("mnist") is None
    np.savez(path, feature_names=np.array(["a", None], dtype=object))
    with pytest.raises(DataError, match="refused"):
        feature_names(str(path))
    np.savez(path, feature_names=np.arange(3))
    with pytest.raises(DataError, match="one text a feature"):
        feature_names(str(path))
    with pytest.raises(InvalidValueError, match="1 feature names for 2 numbers"):
        ranked_features(np.ones(2), np.ones(2), ["a"])
