"""Descriptions of models, and the statistics that are customary for data sets."""

import json

import numpy as np
import pytest
import torch

from smoothcert.architectures.spec import ModelSpec, Normalize, build, normalisation_for
from smoothcert.errors import InvalidValueError

SPEC = ModelSpec("small-cnn", (3, 8, 8), ("cat", "dog"), (0.5, 0.25, 0.0), (0.5, 2.0, 1.0))


def test_normalize_is_per_channel():
    x = np.random.default_rng(0).random((2, 3, 4, 5), dtype=np.float32)
    mean, std = (0.5, 0.25, 0.1), (0.5, 2.0, 0.2)
    expected = np.stack([(x[:, c] - np.float32(mean[c])) / np.float32(std[c]) for c in range(3)], axis=1)
    np.testing.assert_array_equal(Normalize(mean, std)(torch.from_numpy(x)).numpy(), expected)


def test_normalize_follows_the_module_to_another_type_and_stays_out_of_the_weights():
    layer = Normalize((0.5,), (0.5,))
    assert not layer.state_dict()
    assert layer.double()(torch.ones(1, 1, 2, 2, dtype=torch.float64)).dtype == torch.float64


def test_normalize_refuses_nonsense():
    for mean, std, named in (
        ((0.5,), (0.0,), r"\bstd\b.*\b0\.0"),
        ((0.5,), (-1.0,), r"\bstd\b.*-1\.0"),
        ((float("nan"),), (1.0,), r"\bmean\b.*\bnan\b"),
        ((0.5, 0.5), (1.0,), r"\bmean\b.*\bstd\b.*\(0\.5, 0\.5\).*\(1\.0,\)"),
        ((), (), r"\bmean\b.*\bstd\b.*\(\).*\(\)"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            Normalize(mean, std)


def test_model_normalises_pixels_before_the_network():
    model = build(SPEC).eval()
    x = torch.rand(2, 3, 8, 8)
    by_hand = (x - torch.tensor(SPEC.mean)[:, None, None]) / torch.tensor(SPEC.std)[:, None, None]
    assert torch.equal(model(x), model[1](by_hand))


def test_without_statistics_the_first_layer_changes_nothing_and_names_stay_the_same():
    bare = build(ModelSpec("small-cnn", (3, 8, 8), ("cat", "dog")))
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(bare(x), bare[1](x))
    assert bare.state_dict().keys() == build(SPEC).state_dict().keys()
    assert all(name.startswith("1.") for name in bare.state_dict())


def test_json_round_trip_and_what_makes_no_sense():
    for spec in (SPEC, ModelSpec("lenet", (1, 28, 28), ("a",))):
        assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    for field, values in {
        "architecture": [3, None],
        "input_shape": [[1, "8", 8], [True, 8, 8], None, []],
        "classes": [[], "cat", [1, 2]],
        "mean": [[0.5], None],
        "std": ["half"],
    }.items():
        for value in values:
            with pytest.raises(InvalidValueError, match=field):
                ModelSpec.from_json({**SPEC.to_json(), field: value})
    with pytest.raises(InvalidValueError, match=r"'lenett'.*'lenet'.*small-cnn"):
        build(ModelSpec("lenett", (1, 28, 28), ("a", "b")))


CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SVHN = ((0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197))


def test_constants_are_the_customary_ones_of_three_channels():
    for dataset, expected in {
        "cifar10": CIFAR10,
        "imagenet": IMAGENET,
        "kitti": IMAGENET,
        "svhn": SVHN,
    }.items():
        assert normalisation_for(dataset, 3) == expected
        assert normalisation_for(dataset, 1) is None
        ModelSpec("cifar_resnet18", (3, 32, 32), ("a", "b"), *expected)
    for dataset in ("mnist", "fashion-mnist", "digits", "my-own-images"):
        assert normalisation_for(dataset, 1) is normalisation_for(dataset, 3) is None
