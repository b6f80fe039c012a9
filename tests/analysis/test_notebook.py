"""Runs in a notebook: what the commands do, by one import."""

from pathlib import Path

import numpy as np
import pytest

import smoothcert
from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.certification import certify_dataset


def sign(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch[:, 0], -batch[:, 0]], 1)


@pytest.fixture
def run(tmp_path) -> Path:
    data = Dataset("points", np.array([[2.0, 0], [-2, 0], [3, 0]]), np.array([0, 1, 1]), ("a", "b"))
    certify_dataset(SmoothedClassifier(sign, sigma=0.5, n=500, seed=0), data, tmp_path / "run")
    return tmp_path / "run"


def test_runs_are_read_tabled_and_drawn(run, tmp_path, capsys):
    from smoothcert.cli.reading import table

    loaded = smoothcert.load_run(run)
    assert loaded.records.predicted.tolist() == [0, 1, 0]
    text = smoothcert.table([run, str(run)], [0, 0.25])
    table(run, run, radii="0,0.25")
    assert capsys.readouterr().out == text
    assert smoothcert.table(loaded, "0,0.25").splitlines()[0] == text.splitlines()[0]
    assert smoothcert.table(run, layout="paper", format="csv").startswith("dataset,")
    pytest.importorskip("matplotlib")
    out = smoothcert.plot_curves([run], tmp_path / "curves.svg")
    assert out.stat().st_size > 0


def test_mistakes_are_said(tmp_path, run):
    with pytest.raises(RunError, match="none"):
        smoothcert.load_run(tmp_path / "none")
    with pytest.raises(InvalidValueError):
        smoothcert.table([])
    with pytest.raises(InvalidValueError, match=r"'wide'.*\bruns\b.*\bpaper\b.*\bbest\b"):
        smoothcert.table(run, layout="wide")  # type: ignore[arg-type]
