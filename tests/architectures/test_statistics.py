import pytest

from smoothcert.architectures import ModelSpec, normalisation_for

CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SVHN = ((0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [("cifar10", CIFAR10), ("imagenet", IMAGENET), ("kitti", IMAGENET), ("svhn", SVHN)],
)
def test_customary_constants(dataset, expected):
    assert normalisation_for(dataset, 3) == expected
    ModelSpec("cifar_resnet18", (3, 32, 32), ("a", "b"), *normalisation_for(dataset, 3))


@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist", "digits", "my-own-images"])
@pytest.mark.parametrize("channels", [1, 3])
def test_no_normalisation_where_none_is_customary(dataset, channels):
    assert normalisation_for(dataset, channels) is None


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet", "kitti", "svhn"])
def test_constants_for_three_channels_are_not_used_for_another_number(dataset):
    assert normalisation_for(dataset, 1) is None
