"""Every registered architecture keeps the same promises, and ours are the published ones."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import smoothcert.architectures
from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.architectures.networks import Bottleneck
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.errors import InvalidValueError
from tests.architectures.torchvision_names import resnet50_shapes

HELPERS = {"__init__", "base", "checkpoints", "spec", "weights"}


def test_every_family_file_registers_a_builder():
    files = {path.stem for path in Path(smoothcert.architectures.__file__).parent.glob("*.py")} - HELPERS
    registered = {ARCHITECTURES[name].__module__.rpartition(".")[2] for name in ARCHITECTURES}
    assert registered == files


@pytest.mark.parametrize("name", ARCHITECTURES.names())
class TestEveryArchitecture:
    @pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 17, 23)])
    def test_gives_one_logit_per_class(self, name, shape):
        network = ARCHITECTURES[name](shape, 7).eval()
        logits = network(torch.rand(2, *shape))
        assert logits.shape == (2, 7)
        assert torch.isfinite(logits).all()

    def test_row_does_not_depend_on_its_neighbours_in_eval_mode(self, name):
        network = ARCHITECTURES[name]((3, 32, 32), 5)
        network(torch.rand(4, 3, 32, 32))
        x, y = torch.rand(3, 3, 32, 32), torch.rand(3, 3, 32, 32) * 9
        y[1] = x[1]
        network.eval()
        assert torch.equal(network(x)[1], network(y)[1])
        assert not torch.equal(network(x)[0], network(y)[0])

    def test_memory_format_does_not_change_the_answer(self, name):
        # Untrained, 110 layers make numbers up to 1e8 and lose four digits: float64 has enough.
        network = ARCHITECTURES[name]((3, 32, 32), 5).eval().double()
        x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
        plain = network(x)
        # A view that took the memory's order for the logical one would scramble the features.
        last = network.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
        torch.testing.assert_close(last, plain, rtol=1e-6, atol=1e-8)

    def test_impossible_shapes_and_zero_classes_are_named(self, name):
        for shape in ((28, 28), (1, 3, 28), (1, 28, 3), (0, 28, 28), (1, 1, 28, 28), (1, 28.0, 28)):
            with pytest.raises(InvalidValueError, match=f"{name}.*{re.escape(str(shape))}"):
                ARCHITECTURES[name](shape, 10)
        with pytest.raises(InvalidValueError, match=r"classes.*\b0\b"):
            ARCHITECTURES[name]((3, 32, 32), 0)

    def test_seed_decides_the_weights_and_global_state_is_left_alone(self, name):
        spec = ModelSpec(name, (3, 32, 32), ("a", "b"))
        before = torch.get_rng_state()
        first, same, other = (initialise(spec, seed).state_dict() for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert all(torch.equal(first[key], same[key]) for key in first)
        assert not all(torch.equal(first[key], other[key]) for key in first)

    def test_every_parameter_gets_a_gradient(self, name):
        network = ARCHITECTURES[name]((1, 28, 28), 3)
        network(torch.rand(2, 1, 28, 28)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


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


def wide_resnet_size(widths, blocks, classes):
    """Parameters of a WideResNet, by hand: batch norm ahead of each convolution, a bridge where the width changes."""
    size = conv(3, widths[0], 3, bias=False) + 2 * widths[-1] + linear(widths[-1], classes)
    for inward, width in pairwise(widths):
        size += conv(inward, width, 1, bias=False)
        for block in range(blocks):
            first = inward if block == 0 else width
            size += (
                2 * first + conv(first, width, 3, bias=False) + 2 * width + conv(width, width, 3, bias=False)
            )
    return size


RESNET18 = basic_resnet_size((64, 128, 256, 512), 2, 10)


def test_sizes_are_the_published_ones():
    for name, shape, by_hand, known in [
        (
            "lenet",
            (1, 28, 28),
            conv(1, 20, 5) + conv(20, 50, 5) + linear(4 * 4 * 50, 500) + linear(500, 10),
            431_080,
        ),
        (
            "small-cnn",
            (1, 8, 8),
            conv(1, 16, 3) + conv(16, 32, 3) + linear(4 * 4 * 32, 128) + linear(128, 10),
            71_754,
        ),
        (
            "nonuniform-cnn",  # 28 → 26 → 24 → 12
            (1, 28, 28),
            conv(1, 32, 3) + conv(32, 64, 3) + linear(12 * 12 * 64, 128) + linear(128, 10),
            1_199_882,
        ),
        ("cifar_resnet20", (3, 32, 32), basic_resnet_size((16, 32, 64), 3, 10), 272_474),
        ("cifar_resnet110", (3, 32, 32), basic_resnet_size((16, 32, 64), 18, 10), 1_730_714),
        ("wide_resnet40_2", (3, 32, 32), wide_resnet_size((16, 32, 64, 128), 6, 10), 2_243_546),
        ("cifar_resnet18", (3, 32, 32), RESNET18, 11_173_962),
        (
            "cifar_resnet18_7x7",  # 7×7 instead of 3×3, and without the batch norm after it
            (3, 32, 32),
            RESNET18 + conv(3, 64, 7, bias=False) - conv(3, 64, 3, bias=False) - 2 * 64,
            11_181_514,
        ),
    ]:
        assert parameters(name, shape, 10) == by_hand == known


def test_the_least_sides():
    for name, least, below in [
        ("lenet", (1, 16, 16), (1, 15, 28)),
        ("small-cnn", (1, 4, 4), (1, 3, 28)),
        ("nonuniform-cnn", (1, 6, 7), (1, 5, 28)),
        ("cifar_resnet20", (1, 8, 8), (1, 7, 28)),
        ("resnet50", (3, 16, 16), (3, 15, 28)),
    ]:
        assert ARCHITECTURES[name](least, 2).eval()(torch.rand(1, *least)).shape == (1, 2)
        with pytest.raises(InvalidValueError, match=rf"{name}.*\b{least[1]}\b.*{re.escape(str(below))}"):
            ARCHITECTURES[name](below, 2)


def test_lenet_flattened_size_follows_the_input():
    # 32 → 28 → 14 → 10 → 5 and 16 → 12 → 6 → 2 → 1
    network = ARCHITECTURES["lenet"]((3, 32, 16), 10)
    assert network.fc1.in_features == 50 * 5 * 1


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


def test_the_wide_network_has_40_layers_and_halves_the_sides_twice():
    with torch.device("meta"):
        network = ARCHITECTURES["wide_resnet40_2"]((3, 32, 32), 10).eval()
        assert network.stages(network.conv1(torch.rand(2, 3, 32, 32))).shape == (2, 128, 8, 8)
        assert network(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    convolutions = [
        m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)
    ]
    assert len(convolutions) + 1 == 1 + 3 * 6 * 2 + 1  # and one linear layer; three bridges are not counted
    assert {conv.out_channels for conv in convolutions} == {16, 32, 64, 128}


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
