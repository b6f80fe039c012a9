"""train → certify → table, plot, export-log, import-log, predict, on digits."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run


def test_train_writes_a_model_that_certify_knows_everything_about(tmp_path):
    pytest.importorskip("sklearn")
    model, out = tmp_path / "model", tmp_path / "run"
    few = ["--epochs", "1", "--max", "200", "--quiet"]
    main(["train", "digits", "--sigma", "0.3", *few, "--out", str(model)])
    written = ".lock checkpoint.pt metrics.jsonl model.json model.safetensors recipe.toml run.json"
    assert sorted(p.name for p in model.iterdir()) == written.split()
    main(["certify", str(model), "--n", "100", "--max", "2", "--quiet", "--out", str(out)])
    manifest = read_run(out).manifest
    assert (manifest.plan.sigma, manifest.data.name, manifest.model.name) == (0.3, "digits", "small-cnn")


def test_certify_shows_a_table_or_json_or_nothing(digits_run, certify_digits, tmp_path, capsys):
    assert [record.index for record in read_run(digits_run).records] == list(range(0, 60, 3))
    words = [*certify_digits, "--out", str(shutil.copytree(digits_run, tmp_path / "digits"))]
    main(words)
    shown = capsys.readouterr()
    assert all(part in shown.out for part in ("top-two", "n = 1000", " 0.001"))
    assert "[0, 1]" in shown.err
    main([*words, "--json"])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(json.loads(shown.out)["results_sha256"]) == 64
    main([*words, "--quiet"])
    assert capsys.readouterr() == ("", "")


def test_the_csv_header_is_a_contract(digits_run, capsys):
    main(["table", str(digits_run), "--radii", "0,0.25,.5", "--format", "csv"])
    header, row = csv.reader(capsys.readouterr().out.splitlines())
    assert header[:7] == ["run", "sigma", "inputs", "acr", "0", "0.25", ".5"]
    rest = {"dataset": "digits", "split": "test", "planned": "20", "complete": "true"}
    rest |= dict.fromkeys(("sigma_search", "sigma_per", "sigma_levels", "chooser"), "")
    assert dict(zip(header[7:], row[7:])) == rest
    records = read_run(digits_run).records
    assert row[:3] == ["digits", "0.25", "20"]
    assert float(row[3]) == pytest.approx(sum(r.radius * r.correct for r in records) / 20, abs=5e-4)
    assert float(row[5]) == pytest.approx(5.0 * sum(r.correct and r.radius >= 0.25 for r in records))
    for form in ("markdown", "latex", "json"):  # say which bound
        main(["table", str(digits_run), "--format", form])
        assert "top-two" in capsys.readouterr().out


def test_plots(digits_run, tmp_path):
    pytest.importorskip("matplotlib")
    for suffix in (".png", ".svg", ".pdf"):
        main(["plot", str(digits_run), "--out", str(tmp_path / f"curve{suffix}")])
        assert (tmp_path / f"curve{suffix}").stat().st_size > 1000


def test_export_and_import_round_down_and_back(digits_run, tmp_path, capsys):
    main(["run", "export", str(digits_run)])
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "idx\tlabel\tpredict\tradius\tcorrect\ttime"
    log = tmp_path / "log.tsv"
    log.write_text(text)
    main(["run", "import", str(log), "--sigma", "0.25", "--out", str(tmp_path / "back")])
    for there, back in zip(read_run(digits_run).records, read_run(tmp_path / "back").records):
        assert (there.index, there.label, there.predicted) == (back.index, back.label, back.predicted)
        assert 0 <= there.radius - back.radius < 1e-4


def test_predict_writes_one_line_per_input(digits_model, tmp_path, capsys):
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


def test_a_python_function_is_a_model(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    (tmp_path / "mymodel.py").write_text(
        "import numpy as np\n"
        "def predict(batch):\n    return (batch.reshape(len(batch), -1).mean(1) > 0.3).astype(np.int64)\n"
    )
    monkeypatch.chdir(tmp_path)
    what = "certify mymodel:predict --model-returns labels --classes 10 --dataset digits --sigma 0.1 --n 100"
    main([*what.split(), "--max", "3", "--quiet", "--out", "run"])
    assert len(read_run(Path("run")).records) == 3


def test_uniform_noise_and_soft_votes(digits_model, tmp_path):
    common = ["certify", str(digits_model), "--n", "500", "--max", "3", "--quiet"]
    main([*common, "--noise", "uniform", "--out", str(tmp_path / "uniform")])
    assert read_run(tmp_path / "uniform").manifest.plan.norm == "l1"
    main([*common, "--bound", "bernstein", "--out", str(tmp_path / "soft")])
    record = read_run(tmp_path / "soft").records[0]
    assert record.estimation is not None
    assert record.estimation.sums is not None


@pytest.mark.slow
def test_quickstart_ends_with_a_table_and_two_pictures(tmp_path, capsys, monkeypatch):
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
