"""Routes agree with eager evaluation, and fall back or refuse where they can't."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.errors import ModelError
from smoothcert.extras import installed
from smoothcert.models import routes
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics

SHAPE = (2, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 4)
    )


class Viewing(nn.Module):
    """Reshapes with .view, which a channels-last activation refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3)
        self.fc = nn.Linear(216, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.conv(x)
        return self.fc(hidden.view(len(x), -1))


def settled(module: nn.Module, **asked: str) -> str:
    return adapt(module, "hard").prepare(Numerics(**asked), SHAPE).numerics.route


def counts(route: str) -> tuple[int, ...]:
    classifier = SmoothedClassifier(
        network(), sigma=1.0, n=2000, seed=0, numerics=Numerics(route=route, chunk=64)
    )
    x = np.random.default_rng(0).random(SHAPE)
    return classifier.certify(x[np.newaxis], index=0)[0].evidence.estimation.counts


@pytest.mark.parametrize("route", ["channels-last", "folded", "onnxruntime", "openvino"])
def test_routes_vote_almost_as_eager_does(route):
    if route in ("onnxruntime", "openvino"):
        pytest.importorskip(route)
    difference = np.abs(np.array(counts(route)) - np.array(counts("eager"))).sum()
    assert difference <= 4  # a last bit may move a vote or two


def test_the_compiled_route_is_taken_to_torchs_compiler(monkeypatch):
    """With Dynamo's tracer and without code for the processor, which takes a C++ compiler half a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    assert counts("compiled") == counts("eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_route_votes_almost_as_eager_does():
    assert np.abs(np.array(counts("compiled")) - np.array(counts("eager"))).sum() <= 4


class Branching(nn.Module):
    """Batch norm behind a branch on shapes, which a capture follows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.body(x) if len(x.shape) == 4 and x.shape[0] > 0 else x
        return answer


def test_auto_folds_batch_norm_lays_images_out_and_is_eager_elsewhere():
    plain = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
    assert settled(network()) == "folded"
    assert settled(Branching()) == "folded"
    assert settled(plain) == "channels-last"
    assert adapt(nn.Linear(3, 2), "hard").prepare(Numerics(), (3,)).numerics.route == "eager"


def wide_network(activation: nn.Module | None = None) -> nn.Module:
    """Batch norm, and just enough work for a row to be worth an export."""
    torch.manual_seed(1)
    layers = [nn.Conv2d(2, 96, 3), nn.BatchNorm2d(96), activation or nn.ReLU(), nn.Conv2d(96, 96, 3)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1536, 4))


class Branch(nn.Module):
    """Looks at a value: an export would keep the branch that its own rows took."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > -9e9 else -x


class Reader(nn.Module):
    """Reads a number, which a symbolic tracer follows and an exporter freezes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * ((x * 0).sum().item() + 1)


def test_auto_takes_onnxruntime_where_it_is_installed_and_batch_norm_makes_it_worth_the_export(monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")

    assert settled(wide_network()) == "onnxruntime"
    assert settled(wide_network(), dtype="float64") == "folded"  # never tried where it can't work
    assert settled(network()) == "folded"  # little work
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert settled(wide_network()) == "folded"


def test_auto_takes_openvino_without_batch_norm_and_in_bfloat16_where_the_processor_has_it(monkeypatch):
    if not installed("openvino"):  # not by importing it, which its telemetry reports
        pytest.skip("openvino is not installed")
    plain = wide_network()
    plain[1] = nn.Identity()
    assert settled(plain) == "openvino"
    for has, route in ((True, "openvino"), (False, "folded")):
        monkeypatch.setattr(routes, "has_bfloat16", lambda has=has: has)
        assert settled(wide_network(), dtype="bfloat16") == route
    assert settled(wide_network(), dtype="autocast-bfloat16") == "folded"
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert settled(plain) == "channels-last"


def test_an_onnxruntime_that_is_there_and_broken_is_none(monkeypatch, tmp_path):
    (tmp_path / "onnxruntime.py").write_text("raise AttributeError('built for another numpy')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert settled(wide_network()) == "folded"


@pytest.mark.parametrize("looking", [Branch(), Reader()])
def test_auto_never_exports_a_model_that_looks_at_values(looking):
    assert settled(wide_network(looking)) in ("folded", "channels-last")


def test_a_route_that_auto_tries_in_vain_leaves_the_next(monkeypatch):
    def broken(module: nn.Module, rows: torch.Tensor) -> routes.Forward:
        raise RuntimeError("unsupported operator")

    monkeypatch.setitem(routes._OPENERS, "openvino", broken)
    for opener in (broken, moved):
        monkeypatch.setitem(routes._OPENERS, "onnxruntime", opener)
        assert settled(wide_network()) == "folded"


def moved(module: nn.Module, rows: torch.Tensor) -> routes.Forward:
    return lambda batch: module(batch) + 1.0


def test_exporting_is_quiet(capfd, caplog):
    pytest.importorskip("onnxruntime")
    adapt(wide_network(), "hard").prepare(Numerics(), SHAPE)
    said = capfd.readouterr()
    assert (said.out, said.err, caplog.text) == ("", "", "")


def test_a_named_route_that_fails_or_has_other_answers_is_refused(monkeypatch):
    assert settled(Viewing()) == "eager"
    with pytest.raises(ModelError, match=r"'channels-last'.*RuntimeError.*--route auto"):
        adapt(Viewing(), "hard").prepare(Numerics(route="channels-last"), SHAPE)
    monkeypatch.setitem(routes._OPENERS, "channels-last", moved)
    with pytest.raises(ModelError, match=r"'channels-last'.*ModelError.*--route auto"):
        adapt(network(), "hard").prepare(Numerics(route="channels-last"), SHAPE)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_numeric_type_reaches_the_model(dtype):
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    prepared = adapt(module, "hard").prepare(Numerics(dtype=dtype), (4,))
    rows = torch.rand(prepared.numerics.layout().chunk, 4, dtype=prepared.numerics.noise_dtype())
    kind = getattr(torch, dtype)
    assert torch.equal(prepared.outputs(rows), module.to(kind)(rows.to(kind)))
