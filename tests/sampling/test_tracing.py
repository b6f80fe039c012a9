"""A traced network is the whole function: code that asks for tensors is in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothcert import SmoothedClassifier
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.sampling import Numerics
from smoothcert.sampling.tracing import traced


class Hidden(nn.Module):
    """Pictures of a certain mean are shown as their negatives, by code that a plain tracer skips."""

    def __init__(self, asks: Callable[[object], bool]) -> None:
        super().__init__()
        self.asks = asks
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.bias.zero_()  # type: ignore[union-attr]
            self.conv.weight[:, 0, 1, 1] = torch.tensor([1.0, -1.0])

    def forward(self, x: Tensor) -> Tensor:
        if self.asks(x):
            dark = (x.mean((1, 2, 3), keepdim=True) - 0.25).abs() < 0.005
            x = torch.where(dark, -x, x)
        scores: Tensor = self.norm(self.conv(x)).mean((2, 3))
        return scores


@pytest.mark.parametrize("asks", [torch.is_tensor, lambda x: isinstance(x, Tensor)])
def test_votes_are_of_the_whole_function_on_every_route(asks: Callable[[object], bool]) -> None:
    counts = {
        SmoothedClassifier(Hidden(asks), sigma=0.25, n=300, seed=0, numerics=Numerics(route=route))
        .certify(np.full((1, 64, 64), 0.25))
        .estimation.counts
        for route in ("auto", "folded", "eager")
    }
    assert len(counts) == 1
    ((first, second),) = counts
    assert first < second  # most noisy pictures are dark, and class 1 as their negatives


@pytest.mark.parametrize("name", ["cifar_resnet20", "resnet50", "lenet"])
def test_graphs_of_plain_networks_are_torchs_own(name: str) -> None:
    shape = {"lenet": (1, 28, 28)}.get(name, (3, 32, 32))
    module = initialise(ModelSpec(name, shape, tuple("0123456789")), seed=0).eval()
    assert str(traced(module).graph) == str(torch.fx.symbolic_trace(module).graph)


def test_what_looks_at_values_is_not_written_down() -> None:
    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(torch.fx.proxy.TraceError):
        traced(Looks())


def test_parameters_buffers_and_constants_are_the_modules_own() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
            self.register_buffer("shift", torch.tensor([0.5, 0.25]))

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x * self.weight + self.shift, x + torch.tensor([3.0, 4.0])])

    module = Parts()
    x = torch.rand(5, 2)
    assert torch.equal(traced(module)(x), module(x))
