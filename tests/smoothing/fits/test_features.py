"""Ranks and half-widths of features."""

import itertools
import json

import numpy as np
import pytest

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.regions.bodies import Ellipsoid
from smoothcert.smoothing.fits.plan import (
    feature_names,
    group_labels,
    group_names,
    ranked_features,
    ranked_groups,
)


def test_ranks_are_free_of_units():
    start = np.array([100.0, 0.1, 1.0, 1.0])
    found = ranked_features(start * np.array([2.0, 0.5, 1.0, 1.0]), start, ["a", "b", "c", "d"])
    assert [(feature.name, feature.rank) for feature in found] == [("b", 1), ("c", 2), ("d", 2), ("a", 4)]
    assert found[0].half_width is None
    assert found[0].factor == pytest.approx(0.5)


def test_half_widths_are_those_of_the_region():
    sigmas, gap = np.array([[0.5, 2.0], [0.1, 1.0]]), 1.7
    region = Ellipsoid(np.zeros((2, 2)), gap * sigmas)
    for feature in ranked_features(sigmas, np.ones((2, 2)), volume_radius=region.volume_radius):
        direction = np.zeros((2, 2))
        direction[feature.place] = 1.0
        assert feature.half_width == pytest.approx(region.half_width(direction), rel=1e-9)
        assert feature.name == str(feature.place)


def test_names_from_a_file(tmp_path):
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


def test_every_group_has_a_name_of_its_own():
    for spec, shape in itertools.product(("channel", "rows", "patch:2"), ((1, 3, 5), (3, 3, 5))):
        labels, names = group_labels(spec, shape), group_names(spec, shape)
        assert len(set(names)) == len(names) == labels.max() + 1
        assert group_names("pixel", shape) is group_names("0,1", (2,)) is None


def test_groups_are_ranked_among_groups():
    labels = group_labels("channel", (2, 2, 2))
    start = np.arange(1.0, 9.0).reshape(2, 2, 2)
    factors = np.where(labels == 0, 2.0, 0.5)
    features = ranked_features(start * factors, start, volume_radius=1.0)
    groups = ranked_groups(features, labels, ["red", "green"])
    assert [(group.name, group.rank, group.factor) for group in groups] == [
        ("green", 1, 0.5),
        ("red", 2, 2.0),
    ]
    own = [feature for feature in features if feature.place[0] == 1]
    assert groups[0].sigma == pytest.approx(np.exp(np.mean(np.log([one.sigma for one in own]))))
    assert groups[0].half_width == min(one.half_width for one in own if one.half_width is not None)


def test_groups_of_images_and_of_ones_own(tmp_path):
    assert group_labels("pixel", (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert group_labels("channel", (3, 2, 2)).reshape(3, -1).tolist() == [[c] * 4 for c in range(3)]
    assert group_labels("rows", (2, 2, 3))[1].tolist() == [[2, 2, 2], [3, 3, 3]]
    # 3×5 in squares of two: the last row and column of patches are cut short.
    assert group_labels("patch:2", (2, 3, 5)).tolist() == [
        [[0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [3, 3, 4, 4, 5]],
        [[6, 6, 7, 7, 8], [6, 6, 7, 7, 8], [9, 9, 10, 10, 11]],
    ]
    assert group_labels("7,7,-1,3", (4,)).tolist() == [2, 2, 0, 1]
    np.save(tmp_path / "g.npy", np.array([[5, 5], [5, 9]]))
    assert group_labels(str(tmp_path / "g.npy"), (2, 2)).tolist() == [[0, 0], [0, 1]]
    (tmp_path / "g.json").write_text(json.dumps([1, 0, 1]))
    assert group_labels(str(tmp_path / "g.json"), (3,)).tolist() == [1, 0, 1]


def test_groups_that_make_no_sense():
    for spec, shape, named in [
        ("channel", (4,), r"'channel'.*\(4,\)"),
        ("patch:0", (1, 4, 4), r"\b4\b.*'patch:0'"),
        ("patch:x", (1, 4, 4), r"\b4\b.*'patch:x'"),
        ("0,1", (3,), r"'0,1'.*\b2\b.*\b3\b"),
        ("pixels", (3,), "pixel, channel.*'pixels'"),
    ]:
        with pytest.raises(InvalidValueError, match=f"groups.*{named}"):
            group_labels(spec, shape)


def test_files_that_hold_no_labels(tmp_path):
    with pytest.raises(DataError, match=r"groups.*missing\.npy"):
        group_labels(str(tmp_path / "missing.npy"), (2,))
    np.save(tmp_path / "f.npy", np.array([0.5, 1.0]))
    with pytest.raises(InvalidValueError, match=r"f\.npy.*float64"):
        group_labels(str(tmp_path / "f.npy"), (2,))
