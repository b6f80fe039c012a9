"""Members of every family from a file outside the package are known to the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from smoothcert import load_run, verify_run

PLUGIN = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smoothcert.bounds.base import BOUNDS
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.smoothing.stopping.base import COUNT, STOP_RULES, Form, Goal, StopRule


@STOP_RULES.register("patience")
@dataclass(frozen=True)
class Patience(StopRule):
    """Give up after that many votes."""

    name: ClassVar[str] = "patience"
    example: ClassVar[str] = "patience:500"
    words: ClassVar[str] = "give up after 500 votes"
    goal: ClassVar[Goal] = "any"
    form: ClassVar[Form] = COUNT
    votes: int

    def reason(self, state):
        return None if state.votes < self.votes else f"hopeless: {self.votes} votes"


@DATASETS.register("points")
def points(split, root=None):
    return Dataset("points", np.array([[3.0], [-3.0]]), np.array([0, 1]), ("right", "left"))


def sign(batch):
    return np.stack([batch[:, 0], -batch[:, 0]], 1)
'''


def test_a_plugin_is_known_to_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(PLUGIN)
    words = ["certify", "plugged:sign", "--dataset", "points", "--sigma", "1", "--n", "2000"]
    told = subprocess.run(
        [sys.executable, "-m", "smoothcert", *words, "--stop", "patience:500", "--out", "run"],
        cwd=tmp_path,
        env={**os.environ, "SMOOTHCERT_PLUGINS": "plugged.py"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    run = load_run(tmp_path / "run")
    assert run.records.predicted.tolist() == [0, 1]
    assert all("hopeless" in str(record.stopped) for record in run.records)
    assert verify_run(run).recomputed == 2
