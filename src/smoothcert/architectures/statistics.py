"""The per-channel means and standard deviations that networks for a data set customarily normalise with."""

from __future__ import annotations

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2023, 0.1994, 0.2010)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SVHN_MEAN = (0.4377, 0.4438, 0.4728)
SVHN_STD = (0.198, 0.201, 0.197)

_CUSTOMARY: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10": (CIFAR10_MEAN, CIFAR10_STD),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    # Photographs at ImageNet's size, for ImageNet's network.
    "kitti": (IMAGENET_MEAN, IMAGENET_STD),
    "svhn": (SVHN_MEAN, SVHN_STD),
}


def normalisation_for(dataset: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and standard deviation for a data set's name, in [0, 1] pixel units.

    None, for no normalisation, where none is customary (MNIST and its like) or where it is for another
    number of channels.
    """
    mean_and_std = _CUSTOMARY.get(dataset)
    if mean_and_std is None or len(mean_and_std[0]) != channels:
        return None
    return mean_and_std
