"""A machine on which a promise fails is told from one on which all hold; rates are of the same rows, route by route."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from smoothcert.engine.schedule import BlockBits
from smoothcert.errors import ModelError
from smoothcert.health import trials
from smoothcert.health.trials import LEAST_P, LENET, RESNET20, RandomNetwork, noise_fits, same_bits
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.sampler import CellSampler

TINY = RandomNetwork("tiny", "small-cnn", (1, 8, 8))


@pytest.mark.slow
def test_bits_are_the_same_on_every_route() -> None:
    found, failures = same_bits(TINY, "cpu", votes=300)
    assert {one.route for one in found} >= {"eager", "channels-last"}
    assert all(one.same for one in found)
    assert failures == [] or all("onnx" in failure for failure in failures)


@pytest.mark.slow
def test_noise_that_depends_on_the_worker_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seek = BlockBits.seek

    def by_thread(self: BlockBits, stream: object, block: int) -> np.random.SFC64:
        return seek(self, stream, block + threading.get_ident() % 1000)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockBits, "seek", by_thread)
    found, _ = same_bits(TINY, "cpu", votes=300)
    assert not any(one.same for one in found)


def test_noise_fits_its_distribution() -> None:
    found, _ = noise_fits("cpu", 20_000)
    assert [one.noise for one in found] == ["gaussian"] * 2 + ["uniform"] * 2
    assert len({(one.noise, one.what) for one in found}) == 4
    assert all(one.fits and one.p > 0.001 for one in found)


@pytest.mark.parametrize("fault", ["scaled", "shifted", "coordinates alike"])
def test_wrong_noise_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = CellSampler.draw

    def wrong(self: CellSampler, out: np.ndarray, bits: np.random.BitGenerator) -> None:
        draw(self, out, bits)
        if fault == "scaled":
            out *= 1.05
        elif fault == "shifted":
            out += 0.05 * np.abs(out).max() / 4
        else:
            out[:, 1] = out[:, 0]

    monkeypatch.setattr(CellSampler, "draw", wrong)
    worst = min(one.p for one in noise_fits("cpu", 40_000)[0])
    assert worst < LEAST_P


def test_routes_that_make_a_difference() -> None:
    assert trials.routes_of(LENET.module(), "cpu") == ["eager", "channels-last", "onnxruntime", "openvino"]
    here = ["eager", "channels-last", "folded", "onnxruntime", "openvino"]
    assert trials.routes_of(RESNET20.module(), "cpu") == here
    assert trials.routes_of(RESNET20.module(), "cuda:0") == ["eager", "channels-last", "folded", "graphs"]


def test_the_bare_network_does_as_many_passes_as_asked() -> None:
    prepared = adapt(TINY.module(), "hard").prepare(Numerics(chunk=16), TINY.input_shape)
    batches = trials.noisy_batches(prepared, torch.from_numpy(TINY.images(2)), "cpu")
    assert [batch.shape for batch in batches] == [(16, 1, 8, 8)] * 4
    assert trials.bare_rows(prepared, batches, passes=5, workers=2) == 80


def test_every_route_is_measured_and_the_default_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(cast: Callable[[int], float], first: int, least: float) -> float:
        return cast(first)

    monkeypatch.setattr(trials, "measured_rate", rate)
    monkeypatch.setattr(trials, "ROUTES", ("eager", "channels-last", "compiled"))
    opened = trials._classifier

    def some_fail(module: torch.nn.Module, route: str, device: str) -> object:
        if route == "compiled":
            raise ModelError("CC")
        return opened(module, route, device)

    monkeypatch.setattr(trials, "_classifier", some_fail)
    found, failures = trials.measure(TINY, "cpu", 0.1)
    assert [(one.route, one.auto) for one in found] == [("eager", False), ("channels-last", True)]
    assert all(one.votes > 0 and one.bare > 0 and one.ratio > 0 for one in found)
    (failure,) = failures
    assert re.search("tiny.*cpu.*compiled.*CC", failure)


def test_the_same_bits_are_asked_of_a_device_by_its_one_worker() -> None:
    """Several workers of one accelerator are refused: the promise could never be tried there."""
    assert {way.workers for way in trials._ways("cuda:0", 64)} == {None}
    assert {way.batch for way in trials._ways("cuda:0", 64)} == {None, 64, 192}
    assert len({way.workers for way in trials._ways("cpu", 64)}) == 2


@pytest.mark.slow
def test_votes_that_differ_from_the_cpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rounding moves few votes, another network many."""
    assert all(route.alike and route.unlike <= 2 for route in trials.beside_cpu(TINY, "cpu", 300)[0])
    opened = trials._classifier

    def upside_down(module: torch.nn.Module, route: str, *given: str, **plan: str) -> object:
        if route == "channels-last":
            module = torch.nn.Sequential(module, torch.nn.Linear(10, 10))
        return opened(module, route, *given, **plan)

    monkeypatch.setattr(trials, "_classifier", upside_down)
    votes = {route.route: route for route in trials.beside_cpu(TINY, "cpu", 300)[0]}
    assert votes["eager"].alike
    assert not votes["channels-last"].alike
    assert votes["channels-last"].unlike <= votes["channels-last"].votes
