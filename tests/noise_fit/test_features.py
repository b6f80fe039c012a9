"""Ranks and half-widths of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.noise_fit import feature_names
from smoothcert.noise_fit.features import ranked_features, ranked_groups
from smoothcert.noise_fit.groups import group_labels, group_names
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
    with pytest.raises(DataError, match=r"feature_names.*dtype=str"):
        feature_names(str(path))
    np.savez(path, feature_names=np.arange(3))
    with pytest.raises(DataError, match=r"feature_names.*int64.*\(3,\)"):
        feature_names(str(path))
    with pytest.raises(InvalidValueError, match=r"\b1\b.*\b2\b"):
        ranked_features(np.ones(2), np.ones(2), ["a"])


@pytest.mark.parametrize("spec", ["channel", "rows", "patch:2"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_group_has_a_name_of_its_own(spec: str, channels: int) -> None:
    shape = (channels, 3, 5)
    labels, names = group_labels(spec, shape), group_names(spec, shape)
    assert names is not None
    assert len(set(names)) == len(names) == labels.max() + 1
    assert group_names("pixel", shape) is group_names("0,1", (2,)) is None


def test_groups_are_ranked_among_groups() -> None:
    labels = group_labels("channel", (2, 2, 2))
    start = np.arange(1.0, 9.0).reshape(2, 2, 2)
    factors = np.where(labels == 0, 2.0, 0.5)
    features = ranked_features(start * factors, start, reach=1.0)
    groups = ranked_groups(features, labels, ["red", "green"])
    assert [(group.name, group.rank, group.factor) for group in groups] == [
        ("green", 1, 0.5),
        ("red", 2, 2.0),
    ]
    own = [feature for feature in features if feature.place[0] == 1]
    assert groups[0].sigma == pytest.approx(np.exp(np.mean(np.log([one.sigma for one in own]))))
    assert groups[0].half_width == min(one.half_width for one in own if one.half_width is not None)
