"""`certify` and `predict` with a chooser: a run that resumes to the same bits, mistakes told in a line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run
from smoothcert.runs.side_files import read_evidence

from .output import names, refusal

CHOOSER = ["--chooser", "spread:0.66,0.72", "--sigma-levels", "0.12", "0.25", "0.5"]
VOTES = ["--n", "300", "--n0", "20", "--quiet"]


def certified(digits_model: Path, out: Path, *words: str) -> None:
    main(["certify", str(digits_model), *CHOOSER, *VOTES, "--max", "6", "--out", str(out), *words])


@pytest.fixture
def copy(digits_model, build_once, tmp_path) -> Path:
    whole = build_once("run-of-levels", lambda out: certified(digits_model, out))
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_a_run_states_levels_and_keeps_every_vote(copy):
    run = read_run(copy)
    assert run.complete
    assert run.manifest.subject == "one classifier"
    assert run.manifest.plan.sigma_levels == [0.12, 0.25, 0.5]
    assert run.manifest.origin.value("chooser") == "spread:0.66,0.72"
    assert set(run.records.sigma.tolist()) <= {0.12, 0.25, 0.5}
    evidence = read_evidence(copy)
    assert sorted(evidence) == list(range(6))
    for record in run.records:
        assert evidence[record.index].votes[0].estimation == record.estimation


def test_what_is_missing_is_made_again_to_the_same_bits(digits_model, copy):
    """A record whose votes of levels are lost can't be checked any more: it goes, and comes back as it was."""
    before = read_run(copy).records.digest
    lines = (copy / "levels.jsonl").read_text().splitlines()
    (copy / "levels.jsonl").write_text("\n".join(lines[:3]) + "\n")
    certified(digits_model, copy, "--workers", "1")
    assert read_run(copy).records.digest == before
    assert sorted(read_evidence(copy)) == list(range(6))


@pytest.mark.parametrize(
    ("chooser", "largest", "field"),
    [("spread:0.66,0.72", "0.6", "plan.sigma_levels"), ("spread:0.66,0.72000001", "0.5", "plan.chooser")],
)
def test_other_levels_or_another_chooser_are_another_run(chooser, largest, field, digits_model, copy, capsys):
    levels = ["--chooser", chooser, "--sigma-levels", "0.12", "0.25", largest]
    assert field in refusal(capsys, "certify", digits_model, *levels, *VOTES, "--max", "6", "--out", copy)


def test_a_constant_chooser_gives_the_run_of_its_sigma(digits_model, tmp_path):
    words = [*VOTES, "--max", "6"]
    levels = ["--chooser", "constant:1", "--sigma-levels", "0.12", "0.25", "0.5"]
    main(["certify", str(digits_model), *levels, *words, "--out", str(tmp_path / "levels")])
    main(["certify", str(digits_model), "--sigma", "0.25", *words, "--out", str(tmp_path / "fixed")])
    levelled, fixed = (read_run(tmp_path / name).records for name in ("levels", "fixed"))
    assert levelled.digest == fixed.digest


@pytest.mark.slow
def test_processes_give_the_same_bits(digits_model, copy, tmp_path):
    certified(digits_model, tmp_path / "processes", "--backend", "processes", "--workers", "1")
    assert read_run(tmp_path / "processes").records.digest == read_run(copy).records.digest
    assert read_evidence(tmp_path / "processes") == read_evidence(copy)


def test_a_model_for_each_level_and_one_that_chooses(digits_model, tmp_path):
    models = ["--level-models", str(digits_model), str(digits_model), "--sigma-levels", "0.2", "0.3"]
    words = ["--chooser", "energy:0.4", *models, *VOTES, "--max", "3", "--out", str(tmp_path / "run")]
    main(["certify", str(digits_model), *words])
    assert np.isfinite(read_run(tmp_path / "run").records.radius).all()


def test_predictions_of_the_same_classifier(digits_model, capsys):
    main(["predict", str(digits_model), *CHOOSER, "--max", "4", "--n", "200", "--seed", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [row["idx"] for row in told["predictions"]] == [0, 1, 2, 3]


def test_mistakes_are_told_in_a_line(digits_model, tmp_path, capsys):
    for words, named in [
        (["--chooser", "spread:0.66,0.72"], ["--sigma-levels"]),
        (["--sigma-levels", "0.1", "0.2"], ["--chooser"]),
        ([*CHOOSER, "--sigma", "0.25"], ["--sigma 0.25"]),
        ([*CHOOSER, "--sigma-search", "ladder"], ["σ"]),
        ([*CHOOSER, "--bound", "bernstein"], ["bernstein"]),
        ([*CHOOSER, "--total-votes", "100000"], ["total:100000"]),
        ([*CHOOSER, "--hold", "0"], ["[0]"]),
        (["--chooser", "spread:0.66", "--sigma-levels", "0.1", "0.2", "0.3"], ["spread:0.66", 2, 3]),
        (["--chooser", "constant:3", "--sigma-levels", "0.1", "0.2"], [0, 1, 3]),
        ([*CHOOSER, "--level-models", "a", "b"], ["--level-models", "b"]),
        (["--chooser", "nowhere", "--sigma-levels", "0.1", "0.2"], ["nowhere"]),
    ]:
        out = tmp_path / "run"
        message = refusal(capsys, "certify", digits_model, *words, *VOTES, "--max", "2", "--out", out)
        assert names(message, *named)
        assert not out.exists()
