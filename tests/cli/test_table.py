"""`smoothcert table` on made-up runs: layouts, runs under way, and what is refused."""

import csv
import json
import re
from itertools import product
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.cli.arguments import load_named_model
from smoothcert.cli.options import ModelOptions
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run, read_run

from .output import refusal

RECORDS = [Record(0, 1, 1, 0.5, 0.25, 1.0), Record(1, 2, 3, 1.0, 0.25, 1.0)]
PLAN = {
    "noise": "gaussian", "sigma": 0.25, "norm": "l2", "bound": "clopper-pearson", "n": 1000, "alpha": 0.001,
}  # fmt: skip


def make(path: Path, records: list[Record] = RECORDS, **changes: object) -> Path:
    data = {"name": "mnist", "inputs": 10, "planned": 2}
    create_run(path, Manifest.of("certify", PLAN | changes, {}, data), records)
    return path


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_a_run_under_way_is_shown_as_far_as_it_is(tmp_path, layout, capsys):
    whole, begun = make(tmp_path / "whole"), make(tmp_path / "begun", RECORDS[:1])
    words = ["table", str(whole), str(begun), "--layout", layout, "--radii", "0"]
    main([*words, "--format", "csv"])
    shown = capsys.readouterr()
    first, second = csv.DictReader(shown.out.splitlines())
    assert [(row["inputs"], row["0"]) for row in (first, second)] == [("2", "50.0"), ("1", "100.0")]
    assert re.search(r"/begun: 1\D+2\b", shown.err)
    assert "/whole" not in shown.err
    if layout == "paper":
        main(words)
        assert re.search(r"\b1\D+2 inputs\b", capsys.readouterr().out)


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_refusals(tmp_path, layout, capsys):
    run, empty, other = (
        make(tmp_path / "a"),
        make(tmp_path / "empty", []),
        make(tmp_path / "other", norm="l1"),
    )
    for runs, named in (
        ([], ["`smoothcert table --help`"]),
        ([empty], [f"{empty}:"]),
        ([run, empty], [f"{empty}:"]),
        ([run, other], ["a (l2)", "other (l1)"]),
        ([tmp_path / "nothing"], [str(tmp_path / "nothing")]),
    ):
        message = refusal(capsys, "table", *runs, "--layout", layout)
        assert all(part in message for part in named)


def test_certify_keeps_the_objective_it_was_trained_with(digits_model, digits_run, capsys):
    origin = read_run(digits_run).manifest.origin
    assert origin.method == "gaussian"
    assert (origin.trained["objective"], origin.trained["epochs"]) == ("gaussian", 12)
    assert origin.trained["seconds"] > 0
    main(["table", str(digits_run), "--layout", "paper", "--format", "csv", "--radii", "0"])
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["method"], row["dataset"]) == ("gaussian", "digits")
    named = load_named_model(str(digits_model / "model.safetensors"), ModelOptions(), "hard")
    assert named.method is None  # a model without a recipe states none


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_radii_that_alone_were_asked_for_are_said(tmp_path, layout, capsys):
    asked, whole = make(tmp_path / "asked", stop=["grid:0,0.25"]), make(tmp_path / "whole", stop=["wrong"])
    main(["table", str(asked), str(whole), "--layout", layout, "--radii", "0"])
    told = capsys.readouterr().err
    assert re.search(f"{asked}: .*grid:0,0.25 .*ACR", told)
    assert "/whole" not in told


def test_a_run_limited_by_max_is_complete_and_one_under_way_isnt(tmp_path, digits_model, capsys):
    limited, killed = tmp_path / "limited", tmp_path / "killed"
    words = ["certify", str(digits_model), "--n", "100", "--n0", "10", "--every", "7", "--quiet"]
    main([*words, "--max", "3", "--out", str(limited)])
    run = read_run(limited)
    assert (run.complete, len(run.planned or ())) == (True, 3)
    create_run(killed, run.manifest, run.records[:2])
    capsys.readouterr()
    for layout, format in product(("runs", "paper"), ("json", "csv")):
        main(["table", str(limited), str(killed), "--layout", layout, "--format", format])
        shown = capsys.readouterr()
        if format == "json":
            table = json.loads(shown.out)
            rows = table["runs"] if layout == "runs" else table["rows"]
        else:
            rows = list(csv.DictReader(shown.out.splitlines()))
        assert [(int(row["inputs"]), int(row["planned"])) for row in rows] == [(3, 3), (2, 3)]
        assert [str(row["complete"]).lower() for row in rows] == ["true", "false"]
        assert f"{limited}:" not in shown.err
        assert re.search(rf"{killed}: 2\D+3\b", shown.err)
    main(["show", str(limited), "--json"])
    assert json.loads(capsys.readouterr().out)["summary"]["complete"]
    assert "--max" in refusal(capsys, *words, "--max", "5", "--out", limited)


def test_cells_of_a_sweep_are_told_apart_and_can_be_named(tmp_path, capsys):
    runs = [str(make(tmp_path / cell / "certified")) for cell in ("a", "b")]
    for words, names in (([], ["a", "b"]), (["--name", "First", "Second"], ["First", "Second"])):
        main(["table", *runs, "--radii", "0", "--format", "csv", *words])
        assert [row["run"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == names
    main(["compare", *runs, "--radii", "0.25", "--json"])
    compared = json.loads(capsys.readouterr().out)
    assert (compared["first"], compared["second"]) == ("a", "b")
    assert re.search(r"--name\D+1\D+2\b", refusal(capsys, "table", *runs, "--name", "one"))
    assert "--layout paper" in refusal(capsys, "table", *runs, "--layout", "paper", "--name", "a", "b")
