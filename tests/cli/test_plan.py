"""`smoothcert certify --dry-run`: certify's options, no run, figures for people and machines."""

import json
from pathlib import Path

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.evaluation import planning

MODEL = """
def votes(batch):
    return (batch[:, 0] > 0).astype(int)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planning, "measured_rate", lambda cast, first: cast(first) and 1000.0)
    (tmp_path / "planned_model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(tmp_path / "toy.npz", x_test=x, y_test=(x[:, 0] > 0).astype(np.int64))
    return tmp_path


MODEL_AND_DATA = "planned_model:votes --dataset npz:toy.npz --model-returns labels --classes 2"
ASKED = f"certify --dry-run {MODEL_AND_DATA} --sigma 0.5"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    main([*ASKED.split(), *words, "--json"])
    shown = capsys.readouterr()
    assert shown.err == ""
    found: dict[str, object] = json.loads(shown.out)
    return found


def test_figures_follow_from_the_options(folder, capsys):
    found = told(
        capsys, "--n", "1000", "--max", "20", "--chunk", "64", "--price-per-hour", "36", "--workers", "1"
    )
    assert found["inputs"] == 20
    assert found["votes_planned"] == found["votes_expected"] == 20 * 1100
    # 100 votes are two passes of 64 rows, 1000 are 16, and one has no noise.
    assert (found["forward_passes"], found["rows_of_a_pass"]) == (20 * 19, 64)
    assert found["seconds"] == pytest.approx(20 * 19 * 64 / 1000 + found["start_seconds"])
    assert found["cost"] == pytest.approx(found["seconds"] / 100)
    assert found["expected_share"] == 1
    assert found["pilot"] is None
    assert 0.8 < float(found["largest_radius"]) < 1.3  # type: ignore[arg-type]
    assert sorted(file.name for file in folder.iterdir() if file.is_file()) == ["planned_model.py", "toy.npz"]


def test_rules_shards_and_searches(folder, capsys):
    stopped = told(capsys, "--n", "100000", "--stop", "decide:0.1", "--pilot-inputs", "3")
    assert stopped["pilot"] == {"inputs": 3, "votes_each": 1000}
    assert float(stopped["expected_share"]) < 0.5  # type: ignore[arg-type]
    assert told(capsys, "--n", "1000", "--shard", "1/3")["inputs"] == 10
    total = told(capsys, "--n", "1000", "--total-votes", "60000")
    assert total["votes_planned"] == 60_000
    searched = told(capsys, "--n", "1000", "--sigma-search", "ladder")
    assert float(searched["votes_planned"]) > 30 * 1100  # type: ignore[arg-type]
    piloted = told(capsys, "--n", "1000", "--pilot-inputs", "500", "--stop", "wrong")
    assert piloted["pilot"] == {"inputs": 30, "votes_each": 333}


def test_people_get_a_table(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    words = ["--n", "1000", "--stop", "wrong", "--price-per-hour", "2.5", "--seed", "0"]
    found = told(capsys, *words)
    main([*ASKED.split(), *words, "--quiet"])
    shown = capsys.readouterr().out
    for name in ("votes_planned", "votes_expected", "forward_passes", "price_per_hour"):
        assert f" {found[name]:,} " in shown, name
    assert f" {found['largest_radius']:.3f} " in shown


def test_mistakes_end_with_two(folder, capsys):
    for words, named in [
        (["--pilot-inputs", "0"], "--pilot-inputs"),
        (["--price-per-hour", "-1"], "--price-per-hour"),
        (["--stop", "nonsense"], "nonsense"),
        (["--shard", "40/50"], "--shard 40/50"),
        (["--total-votes", "10"], "33000"),  # votes that pilots and the choice of classes take
    ]:
        with pytest.raises(SystemExit) as caught:
            main([*ASKED.split(), *words])
        assert caught.value.code == 2
        assert named in capsys.readouterr().err
