"""Networks in int8: what the statement says is so, and the file is certified like any model."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert import Numerics, SmoothedClassifier, quantize
from smoothcert.cli import main
from smoothcert.engine.execution import Execution
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError
from smoothcert.models.adapt import adapt

pytest.importorskip("onnxruntime.quantization")
onnx = pytest.importorskip("onnx")

SHAPE = (1, 8, 8)
FEW = {"calibration": 64, "validation": 8, "votes": 40}


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(128, 4)).eval()


def inputs(count: int = 40) -> np.ndarray:
    return np.random.default_rng(0).random((count, *SHAPE), dtype=np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return quantize(network(), inputs(), 0.5, **FEW).save(tmp_path_factory.mktemp("int8") / "fit")


def statement(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((path.parent / "statement.json").read_text())
    return told


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_all_layers_are_in_int8_with_a_scale_for_each_channel(saved):
    graph = onnx.load(saved).graph
    held = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    weights = [
        held[node.input[0]]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in held
    ]
    scales = [
        held[node.input[1]].size
        for node in graph.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] in held
        and held[node.input[0]].dtype == np.int8
    ]
    assert sorted(one.size for one in weights if one.dtype == np.int8) == [8 * 9, 128 * 4, 8 * 8 * 9]
    assert sorted(scales) == [4, 8, 8]
    assert graph.node[-1].op_type == "Gemm", "scores are not rounded"


def test_the_statement_says_what_it_was_made_from(saved):
    told = statement(saved)
    assert told["sha256"] == hashlib.sha256(saved.read_bytes()).hexdigest()
    assert told["model_fingerprint"] == adapt(network(), "hard").fingerprint(SHAPE)
    assert (told["layers"], told["in_float32"], told["sigma"]) == (3, [], 0.5)
    again = quantize(network(), inputs(), 0.5, **FEW)
    assert again.onnx == saved.read_bytes()
    assert again.statement == told
    other = quantize(network(), inputs(), 0.5, **FEW | {"seed": 1}).statement
    assert other["calibration"]["sha256"] != told["calibration"]["sha256"]


def test_the_statement_compares_the_votes_of_both_networks():
    """Against a count of its own: the same rows, the module, and onnxruntime."""
    import onnxruntime

    made = quantize(network(), inputs(), 0.5, **FEW)
    held_out = np.random.default_rng(0).permutation(40)[8:16]
    session = onnxruntime.InferenceSession(made.onnx, providers=["CPUExecutionProvider"])
    rows_of_a_pass = session.get_inputs()[0].shape[0]
    agreeing, radii = [], []
    for place in held_out:
        random = np.random.default_rng([0, 2, place])
        rows = inputs()[place] + 0.5 * random.standard_normal((40, *SHAPE), dtype=np.float32)
        with torch.inference_mode():
            before = network()(torch.from_numpy(rows)).argmax(1).numpy()
        after = session.run(None, {"x": np.resize(rows, (rows_of_a_pass, *SHAPE))})[0][:40].argmax(1)
        agreeing.append(100 * (before == after).mean())
        radii.append([(cast == np.bincount(before).argmax()).sum() for cast in (before, after)])
    told = made.statement["held_out"]
    assert told["agreement_percent"]["mean"] == pytest.approx(np.mean(agreeing), abs=0.4)
    assert (told["acr_int8"] == told["acr_float32"]) == all(a == b for a, b in radii)
    assert told["acr_change"]["low"] <= told["acr_int8"] - told["acr_float32"] <= told["acr_change"]["high"]


class Sensitive(nn.Module):
    """Its second layer returns channels that int8 can't hold together, and its third ignores the large one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.zeroth, self.first, self.second = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 8, 3), nn.Linear(288, 4)
        scale = torch.tensor([1e4, *[1.0] * 7]).view(8, 1, 1, 1)
        with torch.no_grad():
            self.first.weight *= scale
            self.first.bias *= scale.flatten()
            self.second.weight[:, :36] = 0
            self.second.bias.zero_()
            self.zeroth.weight.fill_(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.second(torch.relu(self.first(self.zeroth(x))).flatten(1))
        return scores


def test_sensitive_layers_stay_in_float():
    plain = quantize(Sensitive(), inputs(), 0.5, **FEW).statement
    asked = quantize(Sensitive(), inputs(), 0.5, agreement=95, **FEW).statement
    assert plain["held_out"]["agreement_percent"]["mean"] < 95
    assert asked["held_out"]["agreement_percent"]["mean"] > 90
    assert sorted(asked["in_float32"]) == ["/Conv_1", "/Gemm"]
    with pytest.raises(ModelError, match=r"--agreement"):
        quantize(network(), inputs(), 0.5, agreement=100, **FEW | {"votes": 2000})


@pytest.mark.parametrize("workers", [1, 3])
def test_votes_are_equal_over_workers_and_openvino_casts_them(saved, workers):
    pytest.importorskip("openvino")

    def cast(count: int, batch: int | None = None) -> list[Any]:
        smoothed = SmoothedClassifier(
            saved, sigma=0.5, n=3000, seed=1, execution=Execution(workers=count, batch=batch)
        )
        assert smoothed.prepare(SHAPE).numerics.route == "openvino"
        return [one.estimation.sums for one in smoothed.certify(inputs(3))]

    assert cast(workers, 256) == cast(1)
    with SmoothedClassifier(
        saved, sigma=0.5, n=3000, seed=1, numerics=Numerics(route="onnxruntime")
    ) as other:
        assert other.prepare(SHAPE).numerics.route == "onnxruntime"


def test_what_cannot_be_quantised_is_rejected(saved):
    with pytest.raises(ModelError, match=r"model\.onnx.*quantised"):
        quantize(saved, inputs(), 0.5, **FEW)
    with pytest.raises(ModelError, match=r"\bint8\b.*ONNX"):
        quantize(lambda rows: rows.reshape(len(rows), -1)[:, :4], inputs(), 0.5, **FEW)
    with pytest.raises(InvalidValueError, match=r"20 .*8.*24.*--validation"):
        quantize(network(), inputs(20), 0.5, **FEW)
    with pytest.raises(InvalidValueError, match=r"agreement.*101"):
        quantize(network(), inputs(), 0.5, agreement=101, **FEW)


def test_dynamic_quantisation_is_rejected_with_the_remedy(tmp_path, saved):
    from onnxruntime.quantization import quantize_dynamic

    plain, dynamic = tmp_path / "plain.onnx", tmp_path / "dynamic.onnx"
    plain.write_bytes(adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), "hard").as_onnx(SHAPE, 8))  # type: ignore[attr-defined]
    quantize_dynamic(plain, dynamic)
    with pytest.raises(DependentVotesError, match=r"DynamicQuantizeLinear.*fit int8"):
        adapt(dynamic, "hard")


def test_the_command_writes_a_model_that_certifies_verifies_and_replays(digits_model, tmp_path, capsys):
    words = ["--calibration", "100", "--validation", "10", "--votes", "50", "--json"]
    main(["fit", "int8", str(digits_model), "--out", str(tmp_path / "fit"), *words])
    told = json.loads(capsys.readouterr().out)
    assert told["statement"]["sigma"] == 0.25
    assert told["statement"]["held_out"]["agreement_percent"]["mean"] > 95
    model, run = str(tmp_path / "fit" / "model.onnx"), str(tmp_path / "run")
    few = ["--dataset", "digits", "--sigma", "0.25", "--n", "500", "--max", "6"]
    main(["certify", model, *few, "--out", run, "--quiet"])
    main(["verify", run, "--replay", "6", "--model", model, "--dataset", "digits", "--quiet"])
