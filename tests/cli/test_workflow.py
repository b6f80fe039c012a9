"""train → certify → table, plot, export-log, import-log, predict, on digits."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run
from tests.conftest import BuildOnce


@pytest.fixture(scope="module")
def words(digits_model: Path) -> list[str]:
    """The command that made the run, but for how it shows results and where they go."""
    return ["certify", str(digits_model), "--n", "1000", "--max", "20", "--every", "3"]


@pytest.fixture(scope="module")
def run(words: list[str], build_once: BuildOnce) -> Path:
    runs = build_once("workflow-runs", lambda runs: main([*words, "--quiet", "--out", str(runs / "digits")]))
    return runs / "digits"


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    """A copy that a test may write to."""
    return shutil.copytree(run, tmp_path / "digits")


def test_train_writes_a_model_that_certify_knows_everything_about(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    model, out = tmp_path / "model", tmp_path / "run"
    main(
        ["train", "digits", "--sigma", "0.3", "--epochs", "1", "--max", "200", "--quiet", "--out", str(model)]
    )
    assert sorted(p.name for p in model.iterdir()) == [
        ".lock",
        "checkpoint.pt",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "recipe.toml",
        "run.json",
    ]
    main(["certify", str(model), "--n", "100", "--max", "2", "--quiet", "--out", str(out)])
    manifest = read_run(out).manifest
    assert (manifest.plan.sigma, manifest.data.name, manifest.model.name) == (0.3, "digits", "small-cnn")


def test_max_counts_inputs_whatever_skip_is(run: Path) -> None:
    assert [record.index for record in read_run(run).records] == list(range(0, 60, 3))


def test_certify_shows_a_table_and_says_which_bound(
    own_run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--out", str(own_run)])
    shown = capsys.readouterr()
    assert all(part in shown.out for part in ("top-two", "n = 1000", " 0.001"))
    assert "[0, 1]" in shown.err


def test_certify_speaks_json(own_run: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*words, "--json", "--out", str(own_run)])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(json.loads(shown.out)["results_sha256"]) == 64


def test_certify_is_silent_when_quiet(
    own_run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "--quiet", "--out", str(own_run)])
    assert capsys.readouterr() == ("", "")


def test_the_csv_header_is_a_contract(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", str(run), "--radii", "0,0.25,.5", "--format", "csv"])
    header, row = csv.reader(capsys.readouterr().out.splitlines())
    assert header[:7] == ["run", "sigma", "inputs", "acr", "0", "0.25", ".5"]
    assert dict(zip(header[7:], row[7:])) == {
        "dataset": "digits",
        "split": "test",
        "sigma_search": "",
        "sigma_per": "",
        "sigma_levels": "",
        "chooser": "",
        "planned": "20",
        "complete": "true",
    }
    records = read_run(run).records
    assert row[:3] == ["digits", "0.25", "20"]
    assert float(row[3]) == pytest.approx(sum(r.radius * r.correct for r in records) / 20, abs=5e-4)
    assert float(row[5]) == pytest.approx(5.0 * sum(r.correct and r.radius >= 0.25 for r in records))


@pytest.mark.parametrize("form", ["markdown", "latex", "json"])
def test_other_tables_say_which_bound(run: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", str(run), "--format", form])
    assert "top-two" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plots(run: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    main(["plot", str(run), "--out", str(tmp_path / f"curve{suffix}")])
    assert (tmp_path / f"curve{suffix}").stat().st_size > 1000


def test_export_and_import_round_down_and_back(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", "export", str(run)])
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "idx\tlabel\tpredict\tradius\tcorrect\ttime"
    log = tmp_path / "log.tsv"
    log.write_text(text)
    main(["run", "import", str(log), "--sigma", "0.25", "--out", str(tmp_path / "back")])
    for there, back in zip(read_run(run).records, read_run(tmp_path / "back").records):
        assert (there.index, there.label, there.predicted) == (back.index, back.label, back.predicted)
        assert 0 <= there.radius - back.radius < 1e-4


def test_predict_writes_one_line_per_input(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(digits_model), "--n", "200", "--max", "10", "--seed", "0"]
    main(words)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("\t") == ["idx", "label", "predict", "p_value", "correct", "time"]
    assert len(lines) == 11
    main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["inputs"] == 10
    assert answer["correct"] >= 7
    main([*words, "--out", str(tmp_path / "p.tsv"), "--quiet"])
    assert capsys.readouterr() == ("", "")
    assert len((tmp_path / "p.tsv").read_text().splitlines()) == 11


def test_a_python_function_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "mymodel.py").write_text(
        "import numpy as np\n"
        "def predict(batch):\n    return (batch.reshape(len(batch), -1).mean(1) > 0.3).astype(np.int64)\n"
    )
    monkeypatch.chdir(tmp_path)
    what = [
        "certify",
        "mymodel:predict",
        "--model-returns",
        "labels",
        "--classes",
        "10",
        "--dataset",
        "digits",
    ]
    main([*what, "--sigma", "0.1", "--n", "100", "--max", "3", "--quiet", "--out", "run"])
    assert len(read_run(Path("run")).records) == 3


def test_uniform_noise_and_soft_votes(digits_model: Path, tmp_path: Path) -> None:
    common = ["certify", str(digits_model), "--n", "500", "--max", "3", "--quiet"]
    main([*common, "--noise", "uniform", "--out", str(tmp_path / "uniform")])
    assert read_run(tmp_path / "uniform").manifest.plan.norm == "l1"
    main([*common, "--bound", "bernstein", "--out", str(tmp_path / "soft")])
    record = read_run(tmp_path / "soft").records[0]
    assert record.estimation is not None
    assert record.estimation.sums is not None


@pytest.mark.slow
def test_quickstart_ends_with_a_table_and_two_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("smoothcert.cli.quickstart._EPOCHS", 2)
    monkeypatch.setattr("smoothcert.cli.quickstart._EVERY", 25)
    out = tmp_path / "first"
    main(["quickstart", "--n", "1000", "--out", str(out)])
    shown = capsys.readouterr()
    assert "| digits-sigma0.25" in shown.out
    assert "certified-accuracy.png" in shown.err
    assert {p.name for p in out.glob("*.png")} == {"certified-accuracy.png", "digits.png"}
    main(["quickstart", "--n", "1000", "--json", "--out", str(out)])  # at once: everything is there
    assert [row["inputs"] for row in json.loads(capsys.readouterr().out)["runs"]] == [20, 20]
