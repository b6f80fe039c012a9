"""certify → attack on digits: table, JSON, TSV, what was moved or changed, and a run that was tampered with."""

import csv
import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.analysis.intervals import rate_interval
from smoothcert.analysis.metrics import certified_accuracy
from smoothcert.architectures.weights import load_model, save_model
from smoothcert.cli import main
from smoothcert.runs.run import read_run
from tests.empirical.test_empirical import at_distances, linear_onnx
from tests.runs.sealing import without_checksums
from tests.runs.unfinished import forget

from .output import names, refusal, rows

FAST = ["--steps", "5", "--copies", "4", "--n", "500"]


def without_origin(run: Path, copy: Path) -> Path:
    """The run as versions before origins were kept have left it."""
    without_checksums(Path(shutil.copytree(run, copy)))
    manifest = json.loads((copy / "run.json").read_text())
    del manifest["origin"]
    (copy / "run.json").write_text(json.dumps(manifest))
    return copy


def test_certify_remembers_where_things_were_as_typed(digits_run, digits_model):
    origin = read_run(digits_run).manifest.origin.as_json()
    assert origin.pop("trained")["objective"] == "gaussian"
    assert origin.pop("trained_range") == origin.pop("input_range") == [0.0, 1.0]
    assert origin == {
        "model": str(digits_model),
        "architecture": None,
        "dataset": "digits",
        "split": "test",
        "data_dir": None,
        "method": "gaussian",
    }


def test_a_table_of_both_accuracies(digits_run, digits_model, capsys):
    main(["attack", str(digits_run), "--model", str(digits_model), "--radii", "1.5", "0.25", *FAST])
    shown = capsys.readouterr().out
    assert names(shown, 20, "ℓ2")
    certified = certified_accuracy(read_run(digits_run).records, [0.25, 1.5])
    assert [row[:2] for row in rows(shown)] == [
        [radius, f"{100 * share:.1f}"] for radius, share in zip(("0.25", "1.5"), certified)
    ]
    for _, _, empirical, interval, broken in rows(shown):
        low, high = map(float, re.findall(r"[\d.]+", interval))
        assert low <= float(empirical) <= high
        assert float(empirical) <= 100 - 5 * int(broken)  # of 20 inputs, and some may be wrong without attack


def test_json_and_lines_agree(digits_run, digits_model, tmp_path, capsys):
    out = tmp_path / "inputs.tsv"
    words = ["attack", str(digits_run), "--model", str(digits_model), "--radii", "0.25,.5,1.5", *FAST]
    main([*words, "--json", "--out", str(out)])
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)
    records = read_run(digits_run).records
    radii = ["0.25", ".5", "1.5"]
    assert found["radii"] == radii
    assert found["inputs"] == 20
    assert found["attack"]["alpha"] == 0.001
    assert found["contradictions"] == []
    assert (
        list(found["certified_accuracy"].values()) == certified_accuracy(records, [0.25, 0.5, 1.5]).tolist()
    )
    with out.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [int(row["idx"]) for row in rows] == [record.index for record in records]
    for radius in radii:
        held = sum(row["broken_at"] == "" or float(row["broken_at"]) > float(radius) for row in rows)
        assert found["empirical_accuracy"][radius] == held / 20
        assert found["empirical_accuracy"][radius] >= found["certified_accuracy"][radius]
    for row, record in zip(rows, records):
        assert float(row["certified_radius"]) <= record.radius
        assert float(row["certified_radius"]) == pytest.approx(record.correct * record.radius, abs=2e-6)


def test_fewer_inputs_in_both_columns_and_an_interval_of_complete_runs_alone(
    digits_run, digits_model, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["--model", str(digits_model), "--every", "2", "--max", "4", "--radii", "0.5", *FAST]
    main(["attack", str(digits_run), *words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == 4
    expected = certified_accuracy(read_run(digits_run).records[0:8:2], [0.5]).tolist()
    assert list(found["certified_accuracy"].values()) == expected
    standing = round(4 * found["empirical_accuracy"]["0.5"])
    assert tuple(found["empirical_interval"]["0.5"]) == rate_interval(standing, 4)
    part = shutil.copytree(digits_run, tmp_path / "part")
    forget(part, [0])
    main(["attack", str(part), *words])
    shown = capsys.readouterr().out
    assert rows(shown)[0][3] == "–"
    assert names(shown, 19, 20)
    main(["attack", str(part), *words, "--quiet"])
    assert capsys.readouterr() == ("", "")


def test_an_old_run_is_told_where_its_model_is(digits_run, digits_model, tmp_path, capsys):
    old = without_origin(digits_run, tmp_path / "old")
    assert names(refusal(capsys, "attack", old), "small-cnn", "--model")
    main(["attack", str(old), "--model", str(digits_model), "--max", "2", *FAST, "--quiet"])


def test_a_moved_model_stops_neither_resume_nor_attack(digits_model, tmp_path, capsys):
    moved, mine = shutil.copytree(digits_model, tmp_path / "moved"), tmp_path / "run"
    words = ["--n", "1000", "--every", "3", "--max", "2", "--quiet", "--out", str(mine)]
    main(["certify", str(moved), *words])
    forget(mine, [3])
    command = f"smoothcert attack {mine} --model {moved} --dataset digits"
    moved = moved.rename(tmp_path / "elsewhere")
    assert command in refusal(capsys, "attack", mine)
    main(["certify", str(moved), *words])
    assert len(read_run(mine).records) == 2
    main(["attack", str(mine), "--model", str(moved), *FAST, "--quiet"])


def test_another_model_or_split_is_refused(digits_run, digits_model, tmp_path, capsys):
    module, spec = load_model(digits_model)
    with torch.no_grad():
        next(module.parameters()).add_(1e-3)
    other = tmp_path / "other"
    other.mkdir()
    save_model(module, spec, other)
    manifest = read_run(digits_run).manifest
    message = refusal(capsys, "attack", digits_run, "--model", other)
    assert names(message, manifest.model.sha256[:12], "--model")
    message = refusal(capsys, "attack", digits_run, "--model", digits_model, "--split", "train")
    assert names(message, manifest.data.sha256[:12], "--split")


def test_runs_that_cannot_be_attacked_say_why(digits_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    common = ["--n", "100", "--max", "1", "--quiet"]
    main(["certify", str(digits_model), "--noise", "uniform", *common, "--out", "uniform"])
    assert names(refusal(capsys, "attack", "uniform"), "l1", "--noise gaussian")
    Path("mymodel_to_attack.py").write_text(
        "def scores(batch):\n    return batch.reshape(len(batch), -1)[:, :10]\n"
    )
    function = ["certify", "mymodel_to_attack:scores", "--dataset", "digits", "--sigma", "0.1"]
    main([*function, *common, "--out", "function"])
    words = ["attack", "function", "--model", "mymodel_to_attack:scores"]
    assert names(refusal(capsys, *words, "--attack", "pgd"), "pgd", "scores", "nes")
    assert names(refusal(capsys, *words, "--radii", "0"), "radius", "0.0")


def test_a_run_with_false_radii_is_found_out(digits_run, digits_model, tmp_path, capsys):
    false = tmp_path / "false"
    shutil.copytree(digits_run, false)
    without_checksums(false)
    with sqlite3.connect(false / "journal.sqlite") as journal:
        journal.execute("UPDATE records SET radius = radius + 3 WHERE predicted = label")
    journal.close()
    with pytest.raises(SystemExit) as caught:
        main(["attack", str(false), "--model", str(digits_model), "--radii", "3", *FAST, "--json"])
    assert caught.value.code == 3
    shown = capsys.readouterr()
    contradictions = json.loads(shown.out)["contradictions"]
    assert len(contradictions) > 10
    assert all(one["distance"] < 3 <= one["certified_radius"] for one in contradictions)
    *first, summary = " ".join(shown.err.split()).removeprefix("smoothcert: ").split(" smoothcert: ")
    assert len(first) == 10
    for message, one in zip(first, contradictions):
        assert names(message, one["idx"], f"{one['distance']:.6g}")
    assert names(summary, len(contradictions), 20)


def test_a_model_without_gradients_is_attacked_by_votes_and_that_is_said(tmp_path, capsys):
    model = str(linear_onnx(tmp_path / "m.onnx"))
    data = at_distances([0.4, 1.4])
    np.savez(tmp_path / "inputs.npz", x=np.asarray(data.stored), y=data.labels)
    inputs, out = f"npz:{tmp_path / 'inputs.npz'}", str(tmp_path / "run")
    main(["certify", model, "-d", inputs, "--sigma", "0.5", "--n", "1000", "--quiet", "--out", out])
    words = ["attack", out, "--model", model, "--dataset", inputs, "--radii", "0.6", "1"]
    main([*words, "--steps", "10"])
    shown = capsys.readouterr()
    assert names(shown.err, "m.onnx", "nes")
    assert names(shown.out, "nes", 10, 256)
    main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["attack"]["attack"], found["attack"]["copies"]) == ("nes", 256)
    assert found["broken"] == {"0.6": 1, "1": 1}
    assert names(refusal(capsys, *words, "--attack", "pgd"), "pgd", "m.onnx", "nes")
