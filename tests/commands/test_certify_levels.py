"""`certify` and `predict` with a chooser: a run that resumes to the same bits, mistakes told in a line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from smoothcert.commands import main
from smoothcert.runs import read_run
from smoothcert.sigma_levels.evidence import read_evidence

CHOOSER = ["--chooser", "spread:0.66,0.72", "--sigma-levels", "0.12", "0.25", "0.5"]
VOTES = ["--n", "300", "--n0", "20", "--quiet"]


def certified(digits_model: Path, out: Path, *words: str) -> None:
    main(["certify", str(digits_model), *CHOOSER, *VOTES, "--max", "6", "--out", str(out), *words])


def test_a_run_states_levels_and_keeps_every_vote(digits_model: Path, tmp_path: Path) -> None:
    certified(digits_model, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.complete
    assert run.manifest.subject == "one classifier"
    assert run.manifest.plan.sigma_levels == [0.12, 0.25, 0.5]
    assert run.manifest.origin.value("chooser") == "spread:0.66,0.72"
    assert set(run.records.sigma.tolist()) <= {0.12, 0.25, 0.5}
    evidence = read_evidence(tmp_path / "run")
    assert sorted(evidence) == list(range(6))
    for record in run.records:
        assert evidence[record.index].votes[0].estimation == record.estimation


def test_what_is_missing_is_made_again_to_the_same_bits(digits_model: Path, tmp_path: Path) -> None:
    """A record whose votes of levels are lost can't be checked any more: it goes, and comes back as it was."""
    certified(digits_model, tmp_path / "run")
    before = read_run(tmp_path / "run").records.digest
    lines = (tmp_path / "run" / "levels.jsonl").read_text().splitlines()
    (tmp_path / "run" / "levels.jsonl").write_text("\n".join(lines[:3]) + "\n")
    certified(digits_model, tmp_path / "run", "--workers", "1")
    assert read_run(tmp_path / "run").records.digest == before
    assert sorted(read_evidence(tmp_path / "run")) == list(range(6))


def test_other_levels_are_another_run(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified(digits_model, tmp_path / "run")
    words = ["--sigma-levels", "0.12", "0.25", "0.6", *VOTES, "--max", "6", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        main(["certify", str(digits_model), "--chooser", "spread:0.66,0.72", *words])
    assert ended.value.code == 2
    assert "sigma_levels" in capsys.readouterr().err


def test_another_chooser_is_another_run_however_alike(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified(digits_model, tmp_path / "run")
    words = ["--sigma-levels", "0.12", "0.25", "0.5", *VOTES, "--max", "6", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        main(["certify", str(digits_model), "--chooser", "spread:0.66,0.72000001", *words])
    assert ended.value.code == 2
    assert "chooser" in capsys.readouterr().err


def test_a_constant_chooser_gives_the_run_of_its_sigma(digits_model: Path, tmp_path: Path) -> None:
    words = [*VOTES, "--max", "6"]
    levels = ["--chooser", "constant:1", "--sigma-levels", "0.12", "0.25", "0.5"]
    main(["certify", str(digits_model), *levels, *words, "--out", str(tmp_path / "levels")])
    main(["certify", str(digits_model), "--sigma", "0.25", *words, "--out", str(tmp_path / "fixed")])
    levelled, fixed = (read_run(tmp_path / name).records for name in ("levels", "fixed"))
    assert levelled.digest == fixed.digest


def test_a_model_for_each_level_and_one_that_chooses(digits_model: Path, tmp_path: Path) -> None:
    models = ["--level-models", str(digits_model), str(digits_model), "--sigma-levels", "0.2", "0.3"]
    words = ["--chooser", "energy:0.4", *models, *VOTES, "--max", "3", "--out", str(tmp_path / "run")]
    main(["certify", str(digits_model), *words])
    assert np.isfinite(read_run(tmp_path / "run").records.radius).all()


def test_predictions_of_the_same_classifier(digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["predict", str(digits_model), *CHOOSER, "--max", "4", "--n", "200", "--seed", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [row["idx"] for row in told["predictions"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--chooser", "spread:0.66,0.72"], "--sigma-levels is missing"),
        (["--sigma-levels", "0.1", "0.2"], "--chooser is missing"),
        ([*CHOOSER, "--sigma", "0.25"], "one σ for all inputs"),
        ([*CHOOSER, "--sigma-search", "ladder"], "leave the search out"),
        ([*CHOOSER, "--bound", "bernstein"], "hard votes"),
        ([*CHOOSER, "--total-votes", "100000"], "leave it or the sigma levels out"),
        ([*CHOOSER, "--hold", "0"], "can't be held"),
        ([*CHOOSER, "--backend", "processes"], "by threads"),
        (["--chooser", "spread:0.66", "--sigma-levels", "0.1", "0.2", "0.3"], "make 2 levels"),
        (["--chooser", "constant:3", "--sigma-levels", "0.1", "0.2"], "got 3"),
        ([*CHOOSER, "--level-models", "a", "b"], "must be MODEL"),
        (["--chooser", "nowhere", "--sigma-levels", "0.1", "0.2"], "nowhere"),
    ],
)
def test_mistakes_are_told_in_a_line(
    words: list[str], told: str, digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        main(["certify", str(digits_model), *words, *VOTES, "--max", "2", "--out", str(out)])
    assert ended.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert told in error
    assert "Traceback" not in error
    assert not out.exists()
