"""Where a run or a classifier with σ levels makes no sense yet: a sentence, and never the answers of its largest σ."""

import pytest

from smoothcert.empirical.attacker import attack_run
from smoothcert.empirical.results import AttackPlan
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.remembering import remember
from smoothcert.models.adapt import adapt
from smoothcert.runs.run import Run, read_run
from smoothcert.service.engine import VotingEngine
from smoothcert.smoothing.memory import MemoryStatement
from tests.levelled_runs import certified, dataset, halves, levelled

from .output import names, refusal

MODULE = """import numpy as np

def halves(batch):
    first = batch[:, 0].astype(np.float64)
    return np.stack([-first, first], 1)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return read_run(certified(tmp_path_factory.mktemp("refused") / "run", n=200, chooser_n=100))


def test_what_has_no_meaning_for_levels_is_refused(run, tmp_path):
    with pytest.raises(RunError, match="level"):
        remember(run, dataset(), tmp_path / "memory", tmp_path / "out")
    with pytest.raises(InvalidValueError, match="level"):
        MemoryStatement.of(levelled(), (3,))
    with pytest.raises(RunError, match=f"{run.path}.*level"):
        attack_run(run, adapt(halves, "hard"), dataset(), [0.5], AttackPlan())
    with pytest.raises(InvalidValueError, match="level"):
        VotingEngine(levelled(), (3,))
    with pytest.raises(InvalidValueError, match=r"total:100000.*level"):
        levelled(stop=("total:100000",))
    with pytest.raises(InvalidValueError, match=r"level.*\[0\]"):
        levelled().holding([0])


def test_a_memory_and_a_server_like_such_a_run_are_refused_before_any_vote(
    run, tmp_path, monkeypatch, capsys
):
    words = ["certify", "m:f", "--chooser", "constant:0", "--sigma-levels", "1", "--memory", tmp_path / "m"]
    assert "--memory" in refusal(capsys, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refused_model.py").write_text(MODULE)
    words = ["serve", "refused_model:halves", "--input-shape", "3", "--plan-from", run.path, "--port", "0"]
    assert names(refusal(capsys, *words), run.path, "--sigma")
