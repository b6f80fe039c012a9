"""Rates of the engine and of the bare network are of the same rows, route by route."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from smoothcert.errors import ModelError
from smoothcert.health import speed
from smoothcert.health.networks import LENET, RESNET20, RandomNetwork
from smoothcert.sampling import Numerics, adapt

TINY = RandomNetwork("tiny", "small-cnn", (1, 8, 8))


def test_routes_that_make_a_difference() -> None:
    assert speed.routes_of(LENET.module(), "cpu") == ["eager", "channels-last", "onnxruntime"]
    assert speed.routes_of(RESNET20.module(), "cpu") == ["eager", "channels-last", "folded", "onnxruntime"]
    assert speed.routes_of(RESNET20.module(), "cuda:0") == ["eager", "channels-last", "folded", "graphs"]


def test_the_bare_network_does_as_many_passes_as_asked() -> None:
    prepared = adapt(TINY.module(), "hard").prepare(Numerics(chunk=16), TINY.input_shape)
    batches = speed.noisy_batches(prepared, torch.from_numpy(TINY.images(2)), "cpu")
    assert [batch.shape for batch in batches] == [(16, 1, 8, 8)] * 4
    assert speed.bare_rows(prepared, batches, passes=5, workers=2) == 80


def test_every_route_is_measured_and_the_default_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(cast: Callable[[int], float], first: int, least: float) -> float:
        return cast(first)

    monkeypatch.setattr(speed, "measured_rate", rate)
    monkeypatch.setattr(speed, "ROUTES", ("eager", "channels-last", "compiled"))
    opened = speed._classifier

    def some_fail(module: torch.nn.Module, route: str, device: str) -> object:
        if route == "compiled":
            raise ModelError("CC")
        return opened(module, route, device)

    monkeypatch.setattr(speed, "_classifier", some_fail)
    found, failures = speed.measure(TINY, "cpu", 0.1)
    assert [(one.route, one.auto) for one in found] == [("eager", False), ("channels-last", True)]
    assert all(one.votes > 0 and one.bare > 0 and one.ratio > 0 for one in found)
    (failure,) = failures
    assert re.search("tiny.*cpu.*compiled.*CC", failure)
