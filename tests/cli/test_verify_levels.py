"""smoothcert verify for one classifier whose σ follows the input: from certify to votes that are cast again."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.analysis.report.statements import certify_command
from smoothcert.cli import main
from smoothcert.evaluation.recertification import recertify
from smoothcert.runs.run import read_run
from smoothcert.runs.side_files import read_evidence
from tests.cli.test_verify import code, report
from tests.levelled_runs import dataset, edit_line, lines
from tests.verification.runs import copied, edit_record, figures, messages

MODELS = """import numpy as np

def halves(batch):
    first = batch[:, 0].astype(np.float64)
    return np.stack([-first, first], 1)

def others(batch):
    return halves(batch - 0.01)

def chooser(batch):
    return np.eye(3)[np.searchsorted([-0.5, 0.5], batch[:, 1])]

def another_chooser(batch):
    return np.eye(3)[np.searchsorted([-0.5, 0.6], batch[:, 1])]
"""
MODEL = ["--model", "levels_to_verify:halves", "--dataset", "npz:points.npz"]
CHOOSER = ["--chooser", "levels_to_verify:chooser"]
LEVEL_MODELS = ["--level-models", *["levels_to_verify:others"] * 2, "levels_to_verify:halves"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with models, a chooser and data."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "levels_to_verify.py").write_text(MODELS)
    data = dataset()
    x = np.stack([data.input(i) for i in range(len(data))])
    np.savez(folder / "points.npz", x=x, y=data.labels)
    return folder


@pytest.fixture
def here(place, monkeypatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    if not (place / "run").exists():
        certify("run", *CHOOSER)
    return place


def certify(out: str, *words: str) -> None:
    votes = ["--n", "600", "--n0", "20", "--chooser-n0", "20", "--chooser-n", "500", "--seed", "5"]
    main(
        ["certify", *MODEL[1:], "--sigma-levels", "0.25", "0.5", "1", *votes, "--quiet", "--out", out, *words]
    )


def test_every_stages_votes_are_cast_again(here, capsys):
    assert report(capsys, "run", "--replay", "99", *MODEL, *CHOOSER)["replayed"] == 12
    assert code("run", "--replay", "4", "--seed", "3", *MODEL, *CHOOSER) == 0


@pytest.mark.parametrize(
    ("made", "replayed"),
    [
        (["--chooser", "constant:1"], []),
        (["--chooser", "energy:1.5,4"], ["--chooser", "energy:1.5,4"]),
        ([*CHOOSER, *LEVEL_MODELS], [*CHOOSER, *LEVEL_MODELS]),
        ([*CHOOSER, "--stop", "wrong", "--stop", "decide:0.3"], CHOOSER),
        ([*CHOOSER, "--noise", "uniform"], CHOOSER),
    ],
)
def test_plans_of_other_kinds(here, tmp_path, made, replayed, capsys):
    certify(str(tmp_path / "run"), *made)
    assert report(capsys, tmp_path / "run", "--replay", "99", *MODEL, *replayed)["replayed"] == 12


def test_a_recertified_runs_votes(here, tmp_path):
    recertify(read_run(here / "run"), tmp_path / "run", alpha=0.05)
    assert code(str(tmp_path / "run"), "--replay", "99", *MODEL, *CHOOSER) == 0


@pytest.mark.parametrize("stage", ["chooser", "level"])
def test_votes_that_somebody_made_up(here, tmp_path, stage, capsys):
    """A run that follows from its votes, whose votes aren't the chooser's or the level's."""
    run = copied(here / "run", tmp_path / "run")
    victim = 1  # another level keeps its radius small

    def made_up(line: dict[str, Any]) -> None:
        votes = line["chooser"] if stage == "chooser" else line["votes"][1]["estimation"]
        counts = votes["counts"]
        counts[counts.index(max(counts))] -= 3
        counts[counts.index(min(counts))] += 3

    edit_line(run, victim, made_up)
    if problem := messages(run).get(victim):
        edit_record(run, victim, radius=float(np.nextafter(figures(problem)[-1], 0)))
    assert code(str(run)) == 0
    (problem,) = report(capsys, run, "--replay", "99", *MODEL, *CHOOSER, exit_code=4)["problems"]
    assert problem["index"] == victim
    level = lines(run)[victim]["votes"][1]["level"]
    named = "chooser" if stage == "chooser" else f"level {level}"
    assert problem["message"].startswith(f"{named}: estimation ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([*MODEL], ["run ", "--chooser"]),
        ([*MODEL, "--chooser", "constant:0"], ["run ", "--chooser"]),
        ([*MODEL, "--chooser", "levels_to_verify:another_chooser"], ["another_chooser", "SHA-256"]),
        ([*MODEL, *CHOOSER, *LEVEL_MODELS], ["others, others, halves", "SHA-256"]),
        ([*MODEL, *CHOOSER, "--level-models", "a", "b", "c"], ["--level-models", "--model", "a b c"]),
    ],
)
def test_other_models_and_choosers(here, words, named, capsys):
    assert code("run", "--replay", "2", *words) == 2
    errors = capsys.readouterr().err
    assert all(part in errors for part in named)


@pytest.mark.parametrize("made", [[*CHOOSER, *LEVEL_MODELS], ["--chooser", "constant:1"]])
def test_the_command_that_a_report_prints_makes_the_same_run(here, tmp_path, made):
    certify(str(tmp_path / "run"), *made)
    run = read_run(tmp_path / "run")
    words = certify_command(run)
    assert words is not None
    program, *again = shlex.split(words)
    assert program == "smoothcert"
    main([*again, "--quiet"])
    (out,) = (word for before, word in pairwise(again) if before == "--out")
    assert read_run(Path(out)).records.digest == run.records.digest


def test_a_run_through_parquet(here, tmp_path):
    pytest.importorskip("pyarrow")
    main(["run", "export", "run", "--out", str(tmp_path / "run.parquet")])
    main(["run", "import", str(tmp_path / "run.parquet"), "--out", str(tmp_path / "run")])
    assert read_evidence(tmp_path / "run") == read_evidence(here / "run")
    assert code(str(tmp_path / "run"), "--replay", "3", *MODEL, *CHOOSER) == 0


def test_a_chooser_is_for_runs_with_levels(here, tmp_path, capsys):
    run = str(tmp_path / "run")
    words = ["--sigma", "0.5", "--n", "200", "--n0", "20", "--quiet"]
    main(["certify", *MODEL[1:], *words, "--out", run])
    assert code(run, "--replay", "2", *MODEL, *CHOOSER) == 2
    errors = capsys.readouterr().err
    assert all(part in errors for part in ("--chooser", "--level-models", run))
    assert code("run", *CHOOSER) == 2
    errors = capsys.readouterr().err
    assert all(part in errors for part in ("--chooser", "--replay"))
