"""Where a run or a classifier with σ levels makes no sense yet: a sentence, and never the answers of its largest σ."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.empirical.attacker import attack_run
from smoothcert.empirical.results import AttackPlan
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.remembering import remember
from smoothcert.models.adapt import adapt
from smoothcert.runs.run import Run, read_run
from smoothcert.service.engine import VotingEngine
from smoothcert.smoothing.memory import MemoryStatement
from tests.levelled_runs import certified, dataset, halves, levelled

MODULE = """import numpy as np

def halves(batch):
    first = batch[:, 0].astype(np.float64)
    return np.stack([-first, first], 1)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(certified(tmp_path_factory.mktemp("refused") / "run", n=200, chooser_n=100))


def test_a_memory(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="level"):
        remember(run, dataset(), tmp_path / "memory", tmp_path / "out")
    with pytest.raises(InvalidValueError, match="level"):
        MemoryStatement.of(levelled(), (3,))


def test_a_memory_is_refused_before_any_vote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["certify", "m:f", "--chooser", "constant:0", "--sigma-levels", "1"]
    with pytest.raises(SystemExit):
        main([*words, "--memory", str(tmp_path / "m"), "--out", str(tmp_path / "run")])
    assert "--memory" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_attack(run: Run) -> None:
    with pytest.raises(RunError, match=f"{run.path}.*level"):
        attack_run(run, adapt(halves, "hard"), dataset(), [0.5], AttackPlan())


def test_a_server() -> None:
    with pytest.raises(InvalidValueError, match="level"):
        VotingEngine(levelled(), (3,))


def test_a_server_like_such_a_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refused_model.py").write_text(MODULE)
    with pytest.raises(SystemExit):
        main(
            [
                "serve",
                "refused_model:halves",
                "--input-shape",
                "3",
                "--plan-from",
                str(run.path),
                "--port",
                "0",
            ]
        )
    errors = capsys.readouterr().err
    assert str(run.path) in errors
    assert "--sigma" in errors


def test_a_total_of_votes() -> None:
    with pytest.raises(InvalidValueError, match=r"total:100000.*level"):
        levelled(stop=("total:100000",))


def test_held_columns() -> None:
    with pytest.raises(InvalidValueError, match=r"level.*\[0\]"):
        levelled().holding([0])
