"""A model that is used with other noise, or on inputs of another scale, than it was trained with: said, not refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert.analysis.facts import Departures, guessing, near_chance, uninformative
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.cli import main
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import read_run

from .output import names

pytestmark = pytest.mark.filterwarnings("ignore::smoothcert.smoothing.inputs.SmallNoiseWarning")

NOISE = "σ = 0.5", "σ = 0.25"
RANGE = "[0, 1]", "[0, 255]"


def toy_data(path: Path, scale: float) -> None:
    random = np.random.default_rng(0)
    x = np.round(random.random((24, 1, 8, 8)) * 255)
    x[0, 0, 0, :2] = 0, 255
    np.savez(path, x=(x * scale).astype(np.float32), y=np.arange(24) % 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("departures")
    toy_data(folder / "small.npz", 1 / 255)
    toy_data(folder / "large.npz", 1)
    train = ["--sigma", "0.5", "--epochs", "1", "--batch-size", "8", "--quiet"]
    main(["train", f"npz:{folder}/small.npz", *train, "--out", str(folder / "model")])
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)


FEW = ["--n", "100", "--max", "3"]
LIKE = ["model", "--dataset", "npz:small.npz", *FEW]
UNLIKE = ["model", "--dataset", "npz:large.npz", "--sigma", "0.25", *FEW]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    capsys.readouterr()
    main(list(words))
    shown = capsys.readouterr()
    return shown.out, " ".join(shown.err.split())


@pytest.mark.parametrize("command", ["certify", "predict"])
@pytest.mark.parametrize("more", [[], ["--json"], ["--quiet"]])
def test_certify_and_predict_warn(capsys, tmp_path, command, more):
    where = ["--out", str(tmp_path / "out")]
    if not more:
        _, like = told(capsys, command, *LIKE, *where)
        assert "warning" not in like
    _, unlike = told(capsys, command, *UNLIKE, *where[:1], str(tmp_path / "other"), *more)
    told_of = "warning" in unlike, names(unlike, *NOISE), names(unlike, *RANGE)
    assert told_of == 3 * (more != ["--quiet"],)


def test_the_run_states_it_and_show_report_and_attack_repeat_it(capsys, tmp_path):
    run, fine = str(tmp_path / "run"), str(tmp_path / "fine")
    main(["certify", *LIKE, "--out", fine, "--quiet"])
    assert json.loads(told(capsys, "show", fine, "--json")[0])["notes"] == []
    main(["certify", *UNLIKE, "--out", run, "--quiet"])
    origin = json.loads((tmp_path / "run" / "run.json").read_text())["origin"]
    assert (origin["input_range"], origin["trained_range"]) == ([0.0, 255.0], [0.0, 1.0])
    noise, scale = json.loads(told(capsys, "show", run, "--json")[0])["notes"]
    assert names(noise, *NOISE)
    assert names(scale, *RANGE)
    shown, _ = told(capsys, "show", run)
    main(["report", run, "--out", str(tmp_path / "page")])
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    for note in (noise, scale):
        assert note in " ".join(shown.split())
        assert json.dumps(note).strip('"') in page
    data = ["--model", "model", "--dataset", "npz:large.npz", "--radii", "0.1"]
    _, warned = told(capsys, "attack", run, *data, "--steps", "1", "--copies", "1", "--n", "20")
    assert names(warned, *NOISE, *RANGE)


def departures(**parts: Any) -> list[str]:
    origin = {"trained": {"sigma": 0.5}, "input_range": [0.0, 1.0], "trained_range": [0.0, 1.0]}
    plan = {"noise": "gaussian", "sigma": 0.5}
    for name, value in parts.items():
        (plan if name in ("noise", "sigma") else origin)[name] = value  # type: ignore[index]
    return Departures.of(Manifest.of("certify", plan, {}, {}, origin=origin)).in_words()


def test_silent():
    for parts in [
        {},
        {"input_range": [0.1, 0.8]},
        {"input_range": None, "sigma": 0.5000000000001},
        {"trained_range": None, "input_range": [0.0, 255.0]},
        {"trained": {}, "sigma": 1.0},
        {"trained": "anything", "sigma": 1.0},
        {"trained": {"sigma": "much"}, "sigma": 1.0},
        {"noise": "diagonal-gaussian", "sigma": 1.0},
        {"trained": {"sigma": 0.5, "noise": "fits/mine"}, "sigma": 1.0},
        {"sigma": None},
    ]:
        assert departures(**parts) == []


@pytest.mark.parametrize("seen", [[0.0, 255.0], [-0.5, 0.5], [0.0, 1 / 255], [-2.0, 2.0], [5.0, 5.5]])
def test_another_scale(seen):
    (sentence,) = departures(input_range=seen)
    assert f"[{seen[0]:g}, {seen[1]:g}]" in sentence
    assert departures(input_range=[0.0, 1.0], trained_range=seen) != []


def test_other_noise_and_a_constant_data_set():
    (sentence,) = departures(noise="uniform")
    assert names(sentence, "gaussian", "uniform", 0.5)
    assert departures(trained_range=[0.0, 0.0], input_range=[0.0, 0.0]) == []
    assert len(departures(trained_range=[0.0, 0.0])) == 1


@pytest.mark.slow
def test_what_a_checkpoint_leaves_open_is_told_and_can_be_said(capsys, tmp_path):
    spec = ModelSpec("cifar_resnet20", (3, 32, 32), tuple("0123456789"))
    payload = {"arch": "cifar_resnet20", "state_dict": initialise(spec, seed=0).state_dict()}
    torch.save(payload, tmp_path / "c.pth.tar")
    np.savez(tmp_path / "d.npz", x=np.full((1, 3, 32, 32), 0.2, np.float32), y=np.zeros(1, int))
    words = ["certify", str(tmp_path / "c.pth.tar"), "-d", f"npz:{tmp_path}/d.npz", "--sigma", "0.25"]
    words += ["--n", "20", "--n0", "10"]
    _, noted = told(capsys, *words, "--out", str(tmp_path / "standard"))
    assert names(noted, tmp_path / "c.pth.tar", "--normalisation centre")
    _, noted = told(capsys, *words, "--normalisation", "centre", "--out", str(tmp_path / "centred"))
    assert "normalis" not in noted
    standard, centre = (read_run(tmp_path / name).manifest for name in ("standard", "centred"))
    assert standard.model.sha256 != centre.model.sha256  # another function, and known as such
    assert centre.origin.value("normalisation") == "centre"  # the report's command says it again


@pytest.mark.parametrize(
    ("accuracy", "classes", "doubtful"),
    [
        (0.1, 10, True),
        (0.3, 10, False),
        (0.52, 2, True),
        (0.6, 2, False),
        (0.05, 1000, False),
        (0.001, 1000, True),
    ],
)
def test_near_chance_is_hardly_more_than_guessing(accuracy, classes, doubtful):
    assert near_chance(accuracy, classes) is doubtful


def test_a_model_that_learned_nothing_is_told_when_it_is_trained_and_certified(capsys):
    hopeless = ["--sigma", "50", "--epochs", "1", "--lr", "0.001", "--out", "hopeless"]
    assert "warning:" in told(capsys, "train", "digits", *hopeless)[1]
    assert guessing(Path("hopeless"), 10)
    certified = told(capsys, "certify", "hopeless", "--n", "100", "--max", "12", "--out", "hopeless-cert")
    assert "warning:" in certified[1]


def test_answers_of_one_class_say_little():
    labels = np.arange(20) % 4
    assert "class 2" in str(uninformative(np.full(20, 2), labels, 4))
    assert "25 %" in str(uninformative((labels + 1) % 4, labels, 4))
    assert uninformative(labels, labels, 4) is None
    assert uninformative(np.full(20, -1), labels, 4) is None
    assert uninformative(np.full(20, 2), np.full(20, 2), 4) is None
