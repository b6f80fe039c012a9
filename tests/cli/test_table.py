"""`smoothcert table` on made-up runs: layouts, runs under way, and what is refused."""

from __future__ import annotations

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

RECORDS = [Record(0, 1, 1, 0.5, 0.25, 1.0), Record(1, 2, 3, 1.0, 0.25, 1.0)]
PLAN = {
    "noise": "gaussian",
    "sigma": 0.25,
    "norm": "l2",
    "bound": "clopper-pearson",
    "n": 1000,
    "alpha": 0.001,
}


def make(path: Path, records: list[Record] = RECORDS, **changes: object) -> Path:
    data = {"name": "mnist", "inputs": 10, "planned": 2}
    create_run(path, Manifest.of("certify", PLAN | changes, {}, data), records)
    return path


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    assert left.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_a_run_under_way_is_shown_as_far_as_it_is(
    tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, begun = make(tmp_path / "whole"), make(tmp_path / "begun", RECORDS[:1])
    main(["table", str(whole), str(begun), "--layout", layout, "--radii", "0", "--format", "csv"])
    shown = capsys.readouterr()
    first, second = csv.DictReader(shown.out.splitlines())
    assert [(row["inputs"], row["0"]) for row in (first, second)] == [("2", "50.0"), ("1", "100.0")]
    assert re.search(r"/begun: 1\D+2\b", shown.err)
    assert "/whole" not in shown.err


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_a_run_without_records_has_no_figures(
    tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, begun = make(tmp_path / "whole"), make(tmp_path / "begun", [])
    message = refusal(capsys, "table", whole, begun, "--layout", layout)
    assert f"{begun}:" in message


def test_differing_numbers_of_inputs_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["table", str(make(tmp_path / "a")), str(make(tmp_path / "b", RECORDS[:1])), "--layout", "paper"])
    assert re.search(r"\b1\D+2 inputs\b", capsys.readouterr().out)


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_refusals(tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path / "a")
    asked = ["--layout", layout]
    assert "`smoothcert table --help`" in refusal(capsys, "table", *asked)
    empty = make(tmp_path / "empty", [])
    assert f"{empty}:" in refusal(capsys, "table", empty, *asked)
    other = make(tmp_path / "other", norm="l1")
    message = refusal(capsys, "table", run, other, *asked)
    assert all(part in message for part in ("a (l2)", "other (l1)"))
    assert str(tmp_path / "nothing") in refusal(capsys, "table", tmp_path / "nothing", *asked)


def test_certify_keeps_the_objective_it_was_trained_with(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["certify", str(digits_model), "--n", "50", "--max", "2", "--quiet", "--out", str(tmp_path / "x")])
    origin = read_run(tmp_path / "x").manifest.origin
    assert origin.method == "gaussian"
    assert origin.trained["objective"] == "gaussian"
    assert origin.trained["epochs"] == 12
    assert origin.trained["seconds"] > 0
    main(["table", str(tmp_path / "x"), "--layout", "paper", "--format", "csv", "--radii", "0"])
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["method"], row["dataset"]) == ("gaussian", "digits")


def test_a_model_without_a_recipe_states_no_method(digits_model: Path) -> None:
    named = load_named_model(str(digits_model / "model.safetensors"), ModelOptions(), "hard")
    assert named.method is None


@pytest.mark.parametrize("layout", ["runs", "paper"])
def test_radii_that_alone_were_asked_for_are_said(
    tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, whole = make(tmp_path / "asked", stop=["grid:0,0.25"]), make(tmp_path / "whole", stop=["wrong"])
    main(["table", str(asked), str(whole), "--layout", layout, "--radii", "0"])
    told = capsys.readouterr().err
    assert re.search(f"{asked}: .*grid:0,0.25 .*ACR", told)
    assert "/whole" not in told


def test_a_run_limited_by_max_is_complete_and_one_under_way_isnt(
    tmp_path: Path, digits_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_cells_of_a_sweep_are_told_apart_and_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(make(tmp_path / cell / "certified")) for cell in ("a", "b")]
    for words, names in (([], ["a", "b"]), (["--name", "First", "Second"], ["First", "Second"])):
        main(["table", *runs, "--radii", "0", "--format", "csv", *words])
        assert [row["run"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == names
    main(["compare", *runs, "--radii", "0.25", "--json"])
    compared = json.loads(capsys.readouterr().out)
    assert (compared["first"], compared["second"]) == ("a", "b")
    assert re.search(r"--name\D+1\D+2\b", refusal(capsys, "table", *runs, "--name", "one"))
    assert "--layout paper" in refusal(capsys, "table", *runs, "--layout", "paper", "--name", "a", "b")
