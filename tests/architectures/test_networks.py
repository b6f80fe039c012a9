"""Sizes and names of the networks, worked out from the papers."""

import pytest
import torch

from smoothcert.architectures import ARCHITECTURES
from smoothcert.errors import InvalidValueError


def parameters(name, shape, classes):
    return sum(parameter.numel() for parameter in ARCHITECTURES[name](shape, classes).parameters())


def conv(inward, outward, side, bias=True):
    return inward * outward * side * side + (outward if bias else 0)


def linear(inward, outward):
    return inward * outward + outward


def resnet_size(depth, classes):
    """He et al. (2016), table 6, with 1×1 convolutions and batch norm where the width changes."""
    total = conv(3, 16, 3, bias=False) + 2 * 16
    inward = 16
    for width in (16, 32, 64):
        for _ in range((depth - 2) // 6):
            total += conv(inward, width, 3, bias=False) + conv(width, width, 3, bias=False) + 2 * 2 * width
            if inward != width:
                total += conv(inward, width, 1, bias=False) + 2 * width
            inward = width
    return total + linear(64, classes)


def test_lenet_on_mnist():
    by_hand = conv(1, 20, 5) + conv(20, 50, 5) + linear(4 * 4 * 50, 500) + linear(500, 10)
    assert parameters("lenet", (1, 28, 28), 10) == by_hand == 431_080


def test_lenet_flattened_size_follows_the_input():
    # 32 → 28 → 14 → 10 → 5 and 16 → 12 → 6 → 2 → 1
    network = ARCHITECTURES["lenet"]((3, 32, 16), 10)
    assert network.fc1.in_features == 50 * 5 * 1


def test_lenet_needs_sides_of_16():
    assert ARCHITECTURES["lenet"]((1, 16, 16), 2)(torch.rand(1, 1, 16, 16)).shape == (1, 2)
    with pytest.raises(InvalidValueError, match=r"at least 16, got \(1, 15, 28\)"):
        ARCHITECTURES["lenet"]((1, 15, 28), 2)


def test_small_cnn_on_digits():
    by_hand = conv(1, 16, 3) + conv(16, 32, 3) + linear(4 * 4 * 32, 128) + linear(128, 10)
    assert parameters("small-cnn", (1, 8, 8), 10) == by_hand == 71_754


@pytest.mark.parametrize("side", [4, 5, 8])
def test_small_cnn_takes_tiny_images(side):
    assert ARCHITECTURES["small-cnn"]((1, side, side), 3)(torch.rand(2, 1, side, side)).shape == (2, 3)


@pytest.mark.parametrize(("depth", "known"), [(20, 272_474), (110, 1_730_714)])
def test_resnet_size(depth, known):
    assert parameters(f"cifar_resnet{depth}", (3, 32, 32), 10) == resnet_size(depth, 10) == known


def test_resnet_names_are_the_published_ones():
    batch_norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", *(f"bn1.{part}" for part in batch_norm), "fc.weight", "fc.bias"}
    for stage in (1, 2, 3):
        for block in range(3):
            for step in (1, 2):
                expected.add(f"layer{stage}.{block}.conv{step}.weight")
                expected |= {f"layer{stage}.{block}.bn{step}.{part}" for part in batch_norm}
    for stage in (2, 3):
        expected.add(f"layer{stage}.0.downsample.0.weight")
        expected |= {f"layer{stage}.0.downsample.1.{part}" for part in batch_norm}
    assert set(ARCHITECTURES["cifar_resnet20"]((3, 32, 32), 10).state_dict()) == expected


def test_lenet_names_are_the_published_ones():
    names = {f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")}
    assert set(ARCHITECTURES["lenet"]((1, 28, 28), 10).state_dict()) == names


def test_resnet_block_is_the_formula():
    """A block is relu(bn2(conv2(relu(bn1(conv1 x)))) + downsample x), in eval mode with running statistics."""
    network = ARCHITECTURES["cifar_resnet20"]((3, 32, 32), 10).eval().double()
    block = network.layer2[0]
    x = torch.rand(2, 16, 8, 8, dtype=torch.float64)

    def batch_norm(value, layer):
        centred = value - layer.running_mean[:, None, None]
        scaled = centred / (layer.running_var[:, None, None] + 1e-5).sqrt()
        return scaled * layer.weight[:, None, None] + layer.bias[:, None, None]

    inner = torch.conv2d(x, block.conv1.weight, stride=2, padding=1)
    inner = torch.conv2d(batch_norm(inner, block.bn1).clamp(min=0), block.conv2.weight, padding=1)
    bridge = torch.einsum("oi,nihw->nohw", block.downsample[0].weight[:, :, 0, 0], x[:, :, ::2, ::2])
    expected = (batch_norm(inner, block.bn2) + batch_norm(bridge, block.downsample[1])).clamp(min=0)
    torch.testing.assert_close(block(x), expected)
