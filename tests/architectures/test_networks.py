"""Sizes and names of the networks, worked out from the papers."""

import pytest
import torch

from smoothcert.architectures import ARCHITECTURES
from smoothcert.architectures.residual import Bottleneck
from smoothcert.errors import InvalidValueError
from tests.architectures.torchvision_names import resnet50_shapes


def parameters(name, shape, classes):
    with torch.device("meta"):
        network = ARCHITECTURES[name](shape, classes)
    return sum(parameter.numel() for parameter in network.parameters())


def conv(inward, outward, side, bias=True):
    return inward * outward * side * side + (outward if bias else 0)


def linear(inward, outward):
    return inward * outward + outward


def basic_resnet_size(widths, blocks, classes):
    """He et al. (2016), 3×3 stem, with 1×1 convolutions and batch norm where the width changes."""
    total = conv(3, widths[0], 3, bias=False) + 2 * widths[0]
    inward = widths[0]
    for width in widths:
        for _ in range(blocks):
            total += conv(inward, width, 3, bias=False) + conv(width, width, 3, bias=False) + 2 * 2 * width
            if inward != width:
                total += conv(inward, width, 1, bias=False) + 2 * width
            inward = width
    return total + linear(widths[-1], classes)


def test_lenet_on_mnist():
    by_hand = conv(1, 20, 5) + conv(20, 50, 5) + linear(4 * 4 * 50, 500) + linear(500, 10)
    assert parameters("lenet", (1, 28, 28), 10) == by_hand == 431_080


def test_lenet_flattened_size_follows_the_input():
    # 32 → 28 → 14 → 10 → 5 and 16 → 12 → 6 → 2 → 1
    network = ARCHITECTURES["lenet"]((3, 32, 16), 10)
    assert network.fc1.in_features == 50 * 5 * 1


def test_lenet_needs_sides_of_16():
    assert ARCHITECTURES["lenet"]((1, 16, 16), 2)(torch.rand(1, 1, 16, 16)).shape == (1, 2)
    with pytest.raises(InvalidValueError, match=r"lenet.*\b16\b.*\(1, 15, 28\)"):
        ARCHITECTURES["lenet"]((1, 15, 28), 2)


def test_small_cnn_on_digits():
    by_hand = conv(1, 16, 3) + conv(16, 32, 3) + linear(4 * 4 * 32, 128) + linear(128, 10)
    assert parameters("small-cnn", (1, 8, 8), 10) == by_hand == 71_754


@pytest.mark.parametrize("side", [4, 5, 8])
def test_small_cnn_takes_tiny_images(side):
    assert ARCHITECTURES["small-cnn"]((1, side, side), 3)(torch.rand(2, 1, side, side)).shape == (2, 3)


def test_nonuniform_cnn_on_mnist():
    # 28 → 26 → 24 → 12
    by_hand = conv(1, 32, 3) + conv(32, 64, 3) + linear(12 * 12 * 64, 128) + linear(128, 10)
    assert parameters("nonuniform-cnn", (1, 28, 28), 10) == by_hand == 1_199_882


def test_nonuniform_cnn_needs_sides_of_6():
    assert ARCHITECTURES["nonuniform-cnn"]((1, 6, 7), 2)(torch.rand(1, 1, 6, 7)).shape == (1, 2)
    with pytest.raises(InvalidValueError, match=r"nonuniform-cnn.*\b6\b.*\(1, 5, 28\)"):
        ARCHITECTURES["nonuniform-cnn"]((1, 5, 28), 2)


@pytest.mark.parametrize(("depth", "known"), [(20, 272_474), (110, 1_730_714)])
def test_narrow_resnet_size(depth, known):
    by_hand = basic_resnet_size((16, 32, 64), (depth - 2) // 6, 10)
    assert parameters(f"cifar_resnet{depth}", (3, 32, 32), 10) == by_hand == known


def test_resnet18_size():
    by_hand = basic_resnet_size((64, 128, 256, 512), 2, 10)
    assert parameters("cifar_resnet18", (3, 32, 32), 10) == by_hand == 11_173_962


def test_resnet18_behind_imagenets_first_layers():
    """7×7 instead of 3×3, and without the batch norm after it."""
    first = conv(3, 64, 7, bias=False) - conv(3, 64, 3, bias=False) - 2 * 64
    assert parameters("cifar_resnet18_7x7", (3, 32, 32), 10) == 11_173_962 + first == 11_181_514


def test_resnet50_is_torchvisions():
    with torch.device("meta"):
        network = ARCHITECTURES["resnet50"]((3, 224, 224), 1000)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    counters = {name for name in shapes if name.endswith("num_batches_tracked")}
    assert {name: shape for name, shape in shapes.items() if name not in counters} == resnet50_shapes(1000)
    assert counters == {
        name.replace("running_var", "num_batches_tracked") for name in shapes if "_var" in name
    }
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032


@pytest.mark.parametrize(
    ("name", "shape", "sides"),
    [
        ("cifar_resnet18", (3, 32, 32), [32, 16, 8, 4]),
        ("cifar_resnet18", (1, 8, 8), [8, 4, 2, 1]),
        ("cifar_resnet18_7x7", (3, 32, 32), [8, 4, 2, 1]),
        ("resnet50", (3, 224, 224), [56, 28, 14, 7]),
    ],
)
def test_sides_of_the_stages(name, shape, sides):
    found = []
    with torch.device("meta"):
        network = ARCHITECTURES[name](shape, 10).eval()
        for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
            stage.register_forward_hook(lambda module, inputs, output: found.append(output.shape[-1]))
        assert network(torch.rand(2, *shape)).shape == (2, 10)
    assert found == sides


def test_resnet50_on_imagenets_images():
    network = ARCHITECTURES["resnet50"]((3, 224, 224), 4).eval()
    with torch.no_grad():
        logits = network(torch.rand(1, 3, 224, 224))
    assert logits.shape == (1, 4)
    assert torch.isfinite(logits).all()


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


def batch_norm(value, layer):
    centred = value - layer.running_mean[:, None, None]
    scaled = centred / (layer.running_var[:, None, None] + 1e-5).sqrt()
    return scaled * layer.weight[:, None, None] + layer.bias[:, None, None]


def test_basic_block_is_the_formula():
    """A block is relu(bn2(conv2(relu(bn1(conv1 x)))) + downsample x), in eval mode with running statistics."""
    network = ARCHITECTURES["cifar_resnet20"]((3, 32, 32), 10).eval().double()
    block = network.layer2[0]
    x = torch.rand(2, 16, 8, 8, dtype=torch.float64)
    inner = torch.conv2d(x, block.conv1.weight, stride=2, padding=1)
    inner = torch.conv2d(batch_norm(inner, block.bn1).clamp(min=0), block.conv2.weight, padding=1)
    bridge = torch.einsum("oi,nihw->nohw", block.downsample[0].weight[:, :, 0, 0], x[:, :, ::2, ::2])
    expected = (batch_norm(inner, block.bn2) + batch_norm(bridge, block.downsample[1])).clamp(min=0)
    torch.testing.assert_close(block(x), expected)


def test_bottleneck_has_its_stride_in_the_3x3_convolution():
    block = Bottleneck(8, 4, stride=2).double()
    block(torch.rand(5, 8, 6, 6, dtype=torch.float64))  # moves the running statistics off 0 and 1
    block.eval()
    x = torch.rand(2, 8, 6, 6, dtype=torch.float64)
    inner = torch.einsum("oi,nihw->nohw", block.conv1.weight[:, :, 0, 0], x)
    inner = torch.conv2d(batch_norm(inner, block.bn1).clamp(min=0), block.conv2.weight, stride=2, padding=1)
    inner = batch_norm(inner, block.bn2).clamp(min=0)
    inner = torch.einsum("oi,nihw->nohw", block.conv3.weight[:, :, 0, 0], inner)
    bridge = torch.einsum("oi,nihw->nohw", block.downsample[0].weight[:, :, 0, 0], x[:, :, ::2, ::2])
    expected = (batch_norm(inner, block.bn3) + batch_norm(bridge, block.downsample[1])).clamp(min=0)
    assert expected.shape == (2, 16, 3, 3)
    torch.testing.assert_close(block(x), expected)
