"""The memory's promises, against random and adversarial questions, judged in exact arithmetic."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.region_memory import MemoryAnswer, RegionMemory
from smoothcert.tally import ABSTAIN
from tests.region_memory.judge import Ball, Claims, holds, holds_ball, meeting_pairs
from tests.region_memory.postgres_server import Server, postgres_server
from tests.region_memory.toys import (
    BALLS,
    ListStore,
    awkward_point,
    awkward_radius,
    beside,
    saying,
    statement,
)

ROOT = Path(__file__).parent.parent.parent
LIMIT = 60.0  # seconds for which a killed process is waited for


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as running:
        yield running


def check_promises(answers: list[tuple[np.ndarray, MemoryAnswer]], memory: RegionMemory) -> None:
    """No regions of different classes meet, and what was claimed was kept by every later answer."""
    stored = [(answer.predicted, answer.region) for _, answer in memory.answers()]
    assert meeting_pairs(stored) == []
    claims = Claims()
    regions = dict(memory.answers())
    for x, answer in answers:
        if answer.record is not None:
            vouching = regions[answer.record].region
            assert holds(vouching, x)
            assert answer.region is None or holds_ball(vouching, answer.region)
        assert set(claims.holding(x)) <= {answer.predicted}
        if answer.region is not None:
            claims.add(answer.predicted, answer.region)
    assert meeting_pairs(claims.labelled) == []


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("shape", "seeds"), [((1,), 4), ((2,), 4), ((3, 2), 2), ((1, 8, 8), 1)])
@pytest.mark.parametrize("at_hand", [False, True])
@pytest.mark.parametrize("questions", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_no_order_of_questions_breaks_the_promise(
    norm: str, shape: tuple[int, ...], seeds: int, at_hand: bool, questions: int
) -> None:
    sources, inside_one = set(), 0
    for seed in range(seeds if questions > 100 else 1):
        rng = np.random.default_rng([seed, len(shape)])
        memory = RegionMemory(ListStore(statement(shape, norm)))
        answers: list[tuple[np.ndarray, MemoryAnswer]] = []
        balls: list[Ball] = []
        for _ in range(questions):
            x = awkward_point(balls, shape, rng)
            label = int(rng.integers(3)) if rng.random() < 0.95 else ABSTAIN
            radius = awkward_radius(x, balls, rng)
            certify = saying(label, radius, norm)
            before = memory.look_up(x)
            answer = memory.offer(x, certify(x)) if at_hand else memory.answer(x, certify)
            inside_one += before is not None and answer.source != "memory"
            assert before is None or answer.predicted == before.predicted
            assert before is None or answer.volume_radius >= before.volume_radius
            sources.add(answer.source)
            answers.append((x, answer))
            if answer.source in ("certified", "shrunk"):
                balls.append(memory.stored_answer(answer.record).region)
            assert (answer.record is None) == answer.abstained
            again = memory.answer(x, saying(label + 1, radius, norm))
            # Whatever was answered once is answered for ever; an abstention may be followed by anything.
            assert answer.abstained or (again.predicted, again.source) == (answer.predicted, "memory")
            answers.append((x, again))
            if again.source in ("certified", "shrunk"):
                balls.append(memory.stored_answer(again.record).region)
        check_promises(answers, memory)
    assert sources == {"memory", "certified", "shrunk", "abstained"}
    assert (inside_one > questions // 30) == at_hand


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 8, 8)])
def test_every_float_inside_a_claim_is_answered_with_its_class(norm: str, shape: tuple[int, ...]) -> None:
    """At the very edge of the claim too: an abstention there would be a broken promise as well."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(40):
        memory = RegionMemory(ListStore(statement(shape, norm)))
        center = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3)
        claims = [memory.answer(center, saying(1, float(10.0 ** rng.uniform(-3, 3)), norm)).region]
        elsewhere = center + (rng.random(shape) - 0.5) * claims[0].radius / center.size
        claims.append(memory.answer(elsewhere, saying(2, 1.0, norm)).region)  # a claim made from memory
        for claim in claims:
            for _ in range(8):
                direction = rng.normal(size=shape)
                direction /= np.linalg.norm(direction.ravel(), 1 if norm == "l1" else 2)
                x = beside(claim.center + direction * claim.radius, rng)
                answer = memory.answer(x, saying(2, 1.0, norm))
                if holds(claim, x):
                    inside += 1
                    assert (answer.predicted, answer.source) == (1, "memory")
    assert inside > 50


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_what_is_cut_off_is_no_more_than_needed(norm: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(50):
        memory = RegionMemory(ListStore(statement((4,), norm)))
        a, b = rng.normal(size=(2, 4))
        distance = float(np.linalg.norm(a - b, 1 if norm == "l1" else 2))
        memory.answer(a, saying(0, distance * 0.25, norm))
        answer = memory.answer(b, saying(1, distance * 2, norm))
        assert answer.source == "shrunk"
        assert answer.radius == pytest.approx(distance * 0.75, rel=1e-9)
        near = memory.answer(a + (b - a) * 0.125, saying(1, 1.0, norm))
        assert near.source == "memory"
        assert near.radius == pytest.approx(distance * 0.125, rel=1e-9)


def serve_and_kill(address: str, folder: Path, norm: str, kills: int) -> list[dict[str, Any]]:
    """Several processes at once, one killed every few moments and replaced; what they were answered."""
    rng = np.random.default_rng(7)
    diaries: list[Path] = []

    def begin() -> subprocess.Popen[bytes]:
        diaries.append(folder / f"diary-{len(diaries)}")
        command = [
            sys.executable,
            "-m",
            "tests.region_memory.worker",
            address,
            str(len(diaries)),
            diaries[-1],
            norm,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)

    workers = [begin() for _ in range(3)]
    deadline = time.monotonic() + 300
    errors: list[str] = []
    while len(errors) < kills and time.monotonic() < deadline:
        time.sleep(float(rng.uniform(0.05, 0.6)))
        victim = int(rng.integers(len(workers)))
        if diaries[-1].exists():  # the newest got to work: the next one may fall
            errors.append(end(workers[victim]))
            workers[victim] = begin()
    errors += [end(worker) for worker in workers]
    assert [error for error in errors if error] == []
    assert len(errors) == kills + len(workers)
    lines = [line for diary in diaries if diary.exists() for line in diary.read_text().split("\n")[:-1]]
    return [json.loads(line) for line in lines]


def end(worker: subprocess.Popen[bytes]) -> str:
    worker.send_signal(signal.SIGKILL)
    _, error = worker.communicate(timeout=LIMIT)
    return "" if worker.returncode == -signal.SIGKILL else error.decode()


def check_nothing_lost(memory: RegionMemory, diary: list[dict[str, Any]], norm: str) -> None:
    stored_by_them = check_told(memory, diary, norm)
    # A record without an entry is one whose process was killed between storing and telling: one per kill at most.
    assert len(dict(memory.answers())) - len(stored_by_them) <= 100
    assert len(stored_by_them) > 20
    assert any(entry["source"] == "shrunk" for entry in diary)


def check_told(memory: RegionMemory, diary: list[dict[str, Any]], norm: str) -> list[int]:
    """The memory stands by every answer in the diary, none of which contradicts another; records made for them."""
    stored = dict(memory.answers())
    assert meeting_pairs([(answer.predicted, answer.region) for answer in stored.values()]) == []
    claims: list[tuple[int, Ball]] = []
    stored_by_them = []
    for entry in diary:
        x = np.array([float.fromhex(c) for c in entry["x"]])
        if entry["predicted"] == ABSTAIN:
            continue
        record = stored[entry["record"]]
        assert record.predicted == entry["predicted"]
        assert memory.look_up(x).predicted == entry["predicted"]
        radius = float.fromhex(entry["radius"])
        if radius > 0:
            claim = BALLS[norm](x, radius)
            assert holds_ball(record.region, claim)
            claims.append((record.predicted, claim))
        if entry["source"] != "memory":
            assert np.array_equal(record.region.center, x)
            stored_by_them.append(entry["record"])
    assert meeting_pairs(claims) == []
    assert len(set(stored_by_them)) == len(stored_by_them)
    return stored_by_them


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_an_answer_is_on_disk_when_it_is_given(tmp_path: Path, norm: str) -> None:
    """A copy of the files at that moment is what a kill would leave."""
    rng = np.random.default_rng(8)
    diary: list[dict[str, Any]] = []
    balls: list[Ball] = []
    (tmp_path / "live").mkdir()
    with RegionMemory.open(tmp_path / "live" / "memory.sqlite", statement((2,), norm)) as memory:
        for number in range(80):
            x = awkward_point(balls, (2,), rng)
            answer = memory.answer(
                x, saying(int(rng.integers(3)), min(awkward_radius(x, balls, rng), 0.3), norm)
            )
            balls += [] if answer.region is None else [answer.region]
            told = {"predicted": answer.predicted, "source": answer.source, "record": answer.record}
            diary.append(told | {"x": [c.hex() for c in x.tolist()], "radius": answer.radius.hex()})
            if number in (0, 1, 40, 79):
                copy = Path(shutil.copytree(tmp_path / "live", tmp_path / str(number)))
                with RegionMemory.open(copy / "memory.sqlite", statement((2,), norm)) as left:
                    assert len(check_told(left, diary, norm)) == len(dict(left.answers()))
    assert {entry["source"] for entry in diary} >= {"certified", "shrunk", "memory"}


KILLS = [
    ("l2", 2),
    pytest.param("l2", 6, marks=pytest.mark.campaign),
    pytest.param("l1", 6, marks=pytest.mark.campaign),
]


@pytest.mark.system
@pytest.mark.parametrize(("norm", "kills"), KILLS)
def test_no_acknowledged_answer_is_lost_by_killed_processes_on_sqlite(
    tmp_path: Path, norm: str, kills: int
) -> None:
    path = tmp_path / "memory.sqlite"
    diary = serve_and_kill(str(path), tmp_path, norm, kills)
    with RegionMemory.open(path, statement((2,), norm)) as memory:
        check_nothing_lost(memory, diary, norm)


@pytest.mark.system
@pytest.mark.parametrize(("norm", "kills"), KILLS)
def test_no_acknowledged_answer_is_lost_by_killed_processes_on_postgres(
    tmp_path: Path, server: Server, norm: str, kills: int
) -> None:
    address = f"{server.url}#killed_{norm}_{kills}"
    diary = serve_and_kill(address, tmp_path, norm, kills)
    server.stop(signal.SIGQUIT)  # and then the server crashes, too
    server.start()
    with RegionMemory.open(address, statement((2,), norm)) as memory:
        check_nothing_lost(memory, diary, norm)


def test_the_judge_knows_balls_that_touch_from_balls_that_meet() -> None:
    l2 = BALLS["l2"]
    touching = [(0, l2(np.zeros(2), 1.0)), (1, l2(np.array([3.0, 4.0]), 4.0))]
    assert meeting_pairs(touching) == []
    assert meeting_pairs([touching[0], (1, l2(np.array([3.0, 4.0]), np.nextafter(4.0, 5)))]) == [(0, 1)]
    assert holds_ball(l2(np.zeros(1), 1.0), l2(np.array([0.25]), 0.75))
    assert not holds_ball(l2(np.zeros(1), 1.0), l2(np.array([0.25]), np.nextafter(0.75, 1)))
