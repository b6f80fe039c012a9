"""What Python can declare of a model, the command line can, too; a run states it and refuses another."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import SmoothedClassifier, load_run
from smoothcert.analysis.intervals import statement
from smoothcert.cli import main
from smoothcert.plain_text import norm_name
from tests.models.test_declared import linear_file

from .output import names, refusal

MODULE = """
import numpy as np
import torch

WEIGHTS = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, -1.0]], dtype=np.float32)


def bytes_only(batch):
    assert batch.dtype == np.uint8
    return batch @ WEIGHTS


class Pair(torch.nn.Module):
    def forward(self, x):
        scores = x @ torch.from_numpy(WEIGHTS).to(x.dtype)
        return {"a": -scores, "b": scores}


pair = Pair()


def logit(batch):
    return batch[:, 0] - 1


def labels(batch):
    return (batch @ WEIGHTS).argmax(1)
"""
LABELS = ["declared_models:labels", "--model-returns", "labels", "--classes", "3"]
SHORT = ["--sigma", "0.5", "--n", "200", "--quiet"]


@pytest.fixture
def inputs(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("declared_models.py").write_text(MODULE)
    x = np.array([[3.0, 1.0], [1.0, 3.0], [0.0, 2.0], [4.0, 0.0]], dtype=np.float32)
    np.savez("inputs.npz", x=x, y=np.array([0, 1, 1, 0]))
    return "npz:inputs.npz"


def verified(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    main([*words, "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["holds"]
    return report


@pytest.mark.parametrize(
    ("model", "options", "other", "stated"),
    [
        ("bytes_only", ["--input-dtype", "uint8"], None, {"input_dtype": "uint8"}),
        ("pair", ["--model-output", "b"], ["--model-output", "a"], {"output": "b"}),
        ("logit", ["--classes", "2", "--model-returns", "scores"], None, {"classes": 2, "outputs": "scores"}),
        (
            "labels",
            ["--classes", "3", "--model-returns", "labels"],
            ["--classes", "4", "--model-returns", "labels"],
            {"classes": 3, "outputs": "labels"},
        ),
    ],
)
def test_a_declaration_is_stated_and_taken_over(inputs, capsys, model, options, other, stated):
    model = f"declared_models:{model}"
    certify = ["certify", model, "-d", inputs, *SHORT, "--out", "run"]
    main([*certify, *options])
    assert json.loads(Path("run/run.json").read_text())["model"]["declared"] == stated
    main([*certify, *options])  # the same again is the same run
    if other is not None:
        assert "model.declared" in refusal(capsys, *certify, *other)
    verify = ["verify", "run", "--replay", "4", "--model", model, "--dataset", inputs]
    assert verified(capsys, *verify)["replayed"] == 4  # nobody has to say it again
    attack = ["attack", "run", "--model", model, "--dataset", inputs, "--radii", "0.1", "--n", "50"]
    main([*attack, "--steps", "2", "--quiet"])
    if other is not None:
        for words in (verify, attack):
            message = refusal(capsys, *words, *other)
            assert all(f"{name}={value}" in message for name, value in stated.items())
    main(["run", "recertify", "run", "--alpha", "0.01", "--out", "again", "--quiet"])
    assert json.loads(Path("again/run.json").read_text())["model"]["declared"] == stated


def test_constants_come_from_a_file(inputs, capsys):
    model = str(linear_file(Path("m.onnx")))
    np.savez("zero.npz", offset=np.zeros(3))
    np.savez("nine.npz", offset=np.array([9.0, 0.0, 0.0]))
    certify = ["certify", model, "-d", inputs, *SHORT, "--out", "run"]
    main([*certify, "--constants", "zero.npz"])
    stated = json.loads(Path("run/run.json").read_text())["model"]["declared"]["constants"]
    assert list(stated) == ["offset"]
    assert "model.declared" in refusal(capsys, *certify, "--constants", "nine.npz")
    verify = ["verify", "run", "--replay", "2", "--model", model, "--dataset", inputs]
    assert names(refusal(capsys, *verify), "offset", "constants"), "no file is opened unasked"
    main([*verify, "--constants", "zero.npz"])
    Path("bad.npz").write_bytes(b"nothing")
    np.savez("objects.npz", offset=np.array([{}]))
    for name in ("none.npz", "bad.npz", "objects.npz"):
        assert name in refusal(capsys, *certify, "--constants", name)


def test_what_a_known_network_says_itself_is_refused(digits_model, inputs, capsys):
    certify = ["certify", str(digits_model), "-d", inputs, *SHORT, "--out", "run"]
    for words in ("--input-dtype uint8", "--constants x.npz", "--model-output a", "--classes 3"):
        option, value = words.split()
        assert names(refusal(capsys, *certify, option, value), option)


def test_a_forged_declaration_does_nothing():
    from smoothcert.models.adapt import taken_over

    assert (
        taken_over({"outputs": ["x"], "classes": True, "constants": "/etc/passwd", "thread_safe": True}, {})
        == {}
    )
    assert taken_over("text", {}) == taken_over(None, {}) == {}
    assert taken_over({"classes": 3}, {"classes": 2}) == {}


def test_columns_that_are_held_go_through_a_run(inputs, capsys):
    model = "declared_models:labels"
    declared = ["--classes", "3", "--model-returns", "labels"]
    certify = ["certify", model, "-d", inputs, *SHORT, *declared, "--out", "run"]
    main([*certify, "--hold", "0"])
    stated = json.loads(Path("run/run.json").read_text())
    assert stated["model"]["held"] == [0]
    assert re.match(r"labels\b.*\b1\b.*\b2\b", stated["model"]["name"])
    assert stated["plan"]["dimension"] == 1
    run = load_run("run")
    with np.load("inputs.npz") as held:
        x = held["x"]
    # The votes are those that Python casts, so the run is the same as its answers.
    answers = (
        SmoothedClassifier(labels_of, sigma=0.5, n=200, seed=0, outputs="labels", classes=3, levels=1)
        .holding([0])
        .certify(x, index=0)
    )
    assert run.records.radius.tolist() == answers.radius.tolist()  # type: ignore[union-attr]
    main([*certify, "--hold", "0"])
    assert names(refusal(capsys, *certify), "model.held", "[0]", "null")
    assert names(refusal(capsys, *certify, "--hold", "1"), "model.held", "[0]", "[1]")
    main([*certify[:-1], "whole"])
    replay = ["--replay", "4", "--model", model, "--dataset", inputs]
    held, whole = (verified(capsys, "verify", name, *replay) for name in ("run", "whole"))
    assert held["replayed"] == 4
    assert set(held["verified"]) > set(whole["verified"])  # which changes the radii are about
    main(["run", "recertify", "run", "--alpha", "0.01", "--out", "again", "--quiet"])
    assert json.loads(Path("again/run.json").read_text())["model"]["held"] == [0]
    main(["verify", "again", "--quiet"])
    main(["run", "export", "run", "--out", "run.tsv"])
    assert norm_name(run.norm) in capsys.readouterr().err  # a tsv doesn't say what is held
    main(["table", "run", "--radii", "0,0.1"])
    assert norm_name(run.norm) in capsys.readouterr().out
    for words in (["table", "run", "whole"], ["compare", "run", "whole"]):
        assert run.norm in refusal(capsys, *words), "regions of other coordinates aren't compared"
    assert names(statement(run, 0.1), norm_name(run.norm), 0.1)
    assert "--hold" in refusal(capsys, "attack", "run", "--model", model, "--dataset", inputs)
    remember = ["run", "remember", "run", "--dataset", inputs, "--memory", "m.db", "--out", "x"]
    assert "--hold" in refusal(capsys, *remember)
    other = [*certify[:-1], "other", "--hold"]
    for columns, named in (("2", [0, 1, 2]), ("age", ["'age'"]), ("0,1", ["2 of 2"])):
        assert names(refusal(capsys, *other, columns), *named)
    assert "σ" in refusal(capsys, *other, "0", "--sigma-search", "ladder")
    assert not Path("other").exists()
    predict = ["predict", model, "-d", inputs, "--sigma", "0.5", *declared, "--hold", "0"]
    main([*predict, "--seed", "0", "--json"])
    predicted = json.loads(capsys.readouterr().out)["predictions"]
    assert [row["predict"] for row in predicted] == run.records.predicted.tolist()


def labels_of(batch: np.ndarray) -> np.ndarray:
    weights = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, -1.0]], dtype=np.float32)
    return (batch @ weights).argmax(1)


def test_a_shard_without_inputs_has_done_its_part(inputs, capsys):
    """An array of more jobs than inputs: a job that fails would be retried for ever."""
    command = ["certify", *LABELS, "--dataset", inputs, "--sigma", "0.5", "--n", "200", "--max", "2"]
    for number in (1, 2, 3):
        capsys.readouterr()
        main([*command, "--shard", f"{number}/3", "--out", f"shards/{number}"])
    assert names(capsys.readouterr().out, 2, "3/3")
    main([*command, "--shard", "3/3", "--out", "shards/3", "--json"])
    assert json.loads(capsys.readouterr().out)["table"] == []
    main(["run", "merge", "shards/1", "shards/2", "shards/3", "--out", "whole", "--quiet"])
    assert len(load_run("whole").records) == 2


def test_certify_and_show_agree_on_what_rounding_costs(inputs, capsys):
    """What is held isn't rounded: the grid has the other coordinates alone."""
    np.savez("inputs.npz", x=np.array([[0.3, 0.1], [0.7, 0.2]]), y=np.array([0, 1]))
    words = [*LABELS, "--dataset", inputs, "--sigma", "0.5", "--hold", "0"]
    main(["certify", *words, "--n", "200", "--out", "held"])
    (told,) = re.findall(r"\b0\.000\d+", capsys.readouterr().err)
    assert load_run("held").manifest.plan.dtype == "float64"  # 0.3 and 0.7 are no float32
    main(["show", "held"])
    (shown,) = re.findall(r"\b0\.000\d+", capsys.readouterr().out)
    assert float(shown) == pytest.approx(float(told), rel=0.01)
    main(["predict", *words, "--n", "100", "--seed", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 3


FACTORIES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, wide=2):
        super().__init__()
        self.layer = nn.Linear(2, wide)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(2))

    def forward(self, x):
        return self.layer(x)


class Open(nn.Module):
    def __init__(self, width):
        super().__init__()


def build(wide=2):
    return Net(wide)


def failing():
    raise ValueError("weights are elsewhere")
"""
POINTS = ["--dataset", "npz:inputs.npz", "--sigma", "0.5", "--n", "200", "--max", "2", "--quiet"]


@pytest.fixture
def factories(inputs) -> None:
    Path("made_models.py").write_text(FACTORIES)


@pytest.mark.parametrize("made", ["Net", "build"])
def test_a_class_or_factory_without_required_arguments_is_called(factories, made):
    main(["certify", f"made_models:{made}", *POINTS, "--out", "run"])
    assert load_run(Path("run")).manifest.model.name == "Net"


@pytest.mark.parametrize(("made", "told"), [("Open", "width"), ("failing", "weights are elsewhere")])
def test_what_keeps_a_factory_from_being_called_is_named(factories, capsys, made, told):
    assert names(refusal(capsys, "certify", f"made_models:{made}", *POINTS, "--out", "run"), told)


def test_a_trusted_file_of_a_whole_module_is_a_model(factories, capsys, tmp_path):
    """Its class is found in the folder that the command runs in; where it isn't, the module is named."""
    script = "import torch, made_models; torch.save(made_models.Net(), 'whole.pt')"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    trusted = ["certify", "whole.pt", "--trust-pickle", *POINTS]
    sys.modules.pop("made_models", None)
    main([*trusted, "--out", "run"])
    assert load_run(Path("run")).manifest.model.name == "Net"
    sys.modules.pop("made_models", None)
    Path("made_models.py").unlink()
    assert names(refusal(capsys, *trusted, "--out", "other"), "made_models")
