"""Models and states that the tests of this folder share."""

import torch

from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.architectures.spec import ModelSpec

SPEC = ModelSpec("small-cnn", (3, 8, 8), ("cat", "dog"), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def same_state(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def network(name, shape, classes=10, seed=2):
    torch.manual_seed(seed)
    result = ARCHITECTURES[name](shape, classes)
    result(torch.rand(4, *shape))
    return result.eval()


def renamed(module, change):
    return {change(name): tensor for name, tensor in module.state_dict().items()}
