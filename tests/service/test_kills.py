"""Servers killed under load, and two on one database: no acknowledged answer is lost, none contradicts another."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")

from smoothcert.client import Client, ServedAnswer, ServiceError
from tests.smoothing.memory.postgres_server import postgres_server
from tests.waiting import join, until

pytestmark = pytest.mark.campaign

MODEL = """
import numpy as np

def scores(rows):
    edge = 0.5 + 0.2 * np.sin(3 * rows[:, 1])
    return np.stack([edge - rows[:, 0], rows[:, 0] - edge], axis=1)
"""
ANSWERS = int(os.environ.get("SMOOTHCERT_ANSWERS", "10000"))
"""Of two servers on one database, in the campaign."""

Told = tuple[np.ndarray, ServedAnswer]


@contextmanager
def serving(folder: Path, memory: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    (folder / "toy.py").write_text(MODEL)
    words = (
        "serve toy:scores --model-returns scores --classes 2 --input-shape 2 --sigma 0.5 --n 256 --n0 32 --workers 1 "
        "--port 0 --json --sigma-search ladder:rungs=3,votes=16 --max-requests 1000000 --memory"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "smoothcert", *words.split(" "), memory],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 120)[0], "it does not start"
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield process, json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate(timeout=60)


def load(
    urls: list[str],
    callers: int,
    batches: int,
    size: int,
    enough: int | None = None,
    told: list[Told] | None = None,
) -> list[Told]:
    """What callers were told, until the servers are gone, all have asked, or there are more than ``enough`` answers.

    Answers are appended to ``told`` as they come.
    """
    told = [] if told is None else told
    refused: list[int] = []

    def caller(number: int) -> None:
        rng = np.random.default_rng([number, len(urls)])
        client = Client(urls[number % len(urls)], timeout=120)
        for _ in range(batches):
            points = rng.uniform([-1.0, 0.0], [2.0, 3.0], (size, 2))
            try:
                answers = client.certify(points)
            except ServiceError as error:
                refused.append(error.status)
                return
            told.extend(zip(points, answers))
            if enough is not None and len(told) > enough:
                return

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    join(*threads, limit=3600)
    assert set(refused) <= {0, 503}
    return told


def contradictions(told: list[Told]) -> int:
    """Pairs of answers with different classes whose regions meet."""
    certain = [(point, answer) for point, answer in told if not answer.abstained]
    points = np.array([point for point, _ in certain])
    radii = np.array([answer.radius for _, answer in certain])
    classes = np.array([answer.predicted for _, answer in certain])
    found = 0
    for place in range(len(certain)):
        other = np.flatnonzero(classes != classes[place])
        far = np.linalg.norm(points[other] - points[place], axis=1)
        found += int((far < (radii[other] + radii[place]) * (1 - 1e-12)).sum())
    return found


def test_the_check_sees_contradictions() -> None:
    one, other = (ServedAnswer(predicted, 0.6, False, 1) for predicted in (0, 1))
    assert contradictions([(np.zeros(2), one), (np.array([1.0, 0.0]), other)]) == 2
    assert contradictions([(np.zeros(2), one), (np.array([1.3, 0.0]), other)]) == 0


def check_kill(folder: Path, memory: str) -> None:
    before: list[Told] = []

    def kill(process: subprocess.Popen[str]) -> None:
        """In the middle of the load: on a slow machine the first answers take longer than the two seconds."""
        try:
            until(lambda: len(before) > 64, limit=300)
            time.sleep(2.0)
        finally:
            process.send_signal(signal.SIGKILL)

    with serving(folder, memory) as (process, url):
        killer = threading.Thread(target=kill, args=(process,))
        killer.start()
        load([url], callers=8, batches=10_000, size=4, told=before)
        join(killer)
    assert len(before) > 64, "it was killed before it had said anything"
    with serving(folder, memory) as (_, url):
        after = load([url], callers=4, batches=2, size=4)
        for start in range(0, len(before), 64):
            part = before[start : start + 64]
            again = Client(url).certify(np.stack([point for point, _ in part]))
            for (_, first), second in zip(part, again):
                if not first.abstained:
                    assert second.predicted == first.predicted
                    assert second.everything["source"] == "memory", "what was acknowledged is there"
                    assert second.radius >= first.radius * (1 - 1e-9)
    assert contradictions(before + after) == 0


def test_an_answer_outlives_a_kill_sqlite(tmp_path: Path) -> None:
    check_kill(tmp_path, f"sqlite:{tmp_path / 'memory'}")


def test_an_answer_outlives_a_kill_postgresql(tmp_path: Path) -> None:
    with postgres_server() as server:
        check_kill(tmp_path, f"{server.url}#killed")


def test_two_servers_on_one_postgresql_never_contradict_each_other(tmp_path: Path) -> None:
    with postgres_server() as database:
        memory = f"{database.url}#shared"
        with serving(tmp_path, memory) as (_, one), serving(tmp_path, memory) as (_, two):
            told = load([one, two], callers=8, batches=10**6, size=32, enough=ANSWERS)
    assert len(told) > ANSWERS
    assert {answer.predicted for _, answer in told} >= {0, 1}
    assert contradictions(told) == 0
