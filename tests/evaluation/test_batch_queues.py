"""The examples for batch queues, run by a scheduler that kills jobs and submits them again."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smoothcert.evaluation.merging import merge
from smoothcert.runs.run import read_run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SHARDS = 2
MODEL = '''
import numpy as np


def digits(batch):
    """Scores of ten classes by the mean of ten parts of a picture: slow enough to be killed midway."""
    parts = batch.reshape(len(batch), -1)[:, :60].reshape(len(batch), 10, 6)
    return parts.mean(2)
'''


def kubernetes_command() -> str:
    """What the container is told to run."""
    text = (EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"args:\n\s+- >-\n(.*?)\n\s+env:", text, re.DOTALL)
    return " ".join(line.strip() for line in command.splitlines())


@pytest.fixture
def place(tmp_path) -> Path:
    """A directory with a model, and a ``smoothcert`` that runs this source."""
    (tmp_path / "model_of_digits.py").write_text(MODEL)
    command = tmp_path / "bin" / "smoothcert"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m smoothcert "$@" --model-returns scores --sigma 0.3 --every 30 --quiet\n'
    )
    command.chmod(0o755)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    here = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
    path = os.pathsep.join([str(place / "bin"), os.environ["PATH"]])
    told = {"MODEL": "model_of_digits:digits", "DATASET": "digits", "VOTES": "2000"}
    return os.environ | {"PATH": path, "PYTHONPATH": here} | told | more


@contextmanager
def job(place: Path, number: int, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job under way; at the end of the block whatever is left of it is killed."""
    if kind == "slurm":
        told = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(SHARDS)}
        words = ["bash", str(EXAMPLES / "slurm.sh")]
    else:
        told = {"JOB_COMPLETION_INDEX": str(number - 1), "SHARDS": str(SHARDS)}
        words = ["bash", "-c", kubernetes_command().replace("/runs/shards", str(place / "shards"))]
    process = subprocess.Popen(words, cwd=place, env=environment(place, **told), start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_jobs_that_are_killed_and_submitted_again_end_in_the_run_of_one_process(place, kind):
    pytest.importorskip("sklearn")
    whole = [
        "smoothcert",
        "certify",
        "model_of_digits:digits",
        "--dataset",
        "digits",
        "--n",
        "2000",
        "--out",
        "whole",
    ]
    subprocess.run(whole, cwd=place, env=environment(place), check=True, timeout=300)
    chance = random.Random(kind)
    for number in range(1, SHARDS + 1):
        with job(place, number, kind) as first:
            journal = place / "shards" / str(number) / "journal.sqlite"
            deadline = time.monotonic() + 60
            while not journal.exists() and first.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(chance.random() * 0.5)
        with job(place, number, kind) as second:
            assert second.wait(120) == 0
    merged = merge(sorted((place / "shards").iterdir()), place / "merged")
    assert merged.records.digest == read_run(place / "whole").records.digest
    assert len(merged.records) > 5
