"""The memory's promises, against random and adversarial questions, judged in exact arithmetic."""

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

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.perturb.uniform import DiagonalUniform
from smoothcert.regions.bodies import CertifiedRegion, CrossPolytope, Ellipsoid, GaugeBody
from smoothcert.smoothing.memory import MemoryAnswer, MemoryStatement, RegionMemory
from smoothcert.tally import ABSTAIN
from tests.smoothing.memory.judge import Ball, Claims, holds, holds_ball, meeting_pairs
from tests.smoothing.memory.postgres_server import Server, postgres_server
from tests.smoothing.memory.stretched_judge import certainly_disjoint, certainly_inside
from tests.smoothing.memory.stretched_judge import holds as holds_exactly
from tests.smoothing.memory.toys import (
    BALLS,
    ListStore,
    Toy,
    awkward_point,
    awkward_radius,
    beside,
    never,
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
def test_no_order_of_questions_breaks_the_promise(norm, shape, seeds, at_hand, questions):
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
def test_every_float_inside_a_claim_is_answered_with_its_class(norm, shape):
    """At the very edge of the claim too: an abstention there would be a broken promise as well."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(20):
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
    assert inside > 25


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_what_is_cut_off_is_no_more_than_needed(norm):
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
            "tests.smoothing.memory.worker",
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
def test_an_answer_is_on_disk_when_it_is_given(tmp_path, norm):
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
def test_no_acknowledged_answer_is_lost_by_killed_processes_on_sqlite(tmp_path, norm, kills):
    path = tmp_path / "memory.sqlite"
    diary = serve_and_kill(str(path), tmp_path, norm, kills)
    with RegionMemory.open(path, statement((2,), norm)) as memory:
        check_nothing_lost(memory, diary, norm)


@pytest.mark.system
@pytest.mark.parametrize(("norm", "kills"), KILLS)
def test_no_acknowledged_answer_is_lost_by_killed_processes_on_postgres(tmp_path, server, norm, kills):
    address = f"{server.url}#killed_{norm}_{kills}"
    diary = serve_and_kill(address, tmp_path, norm, kills)
    server.stop(signal.SIGQUIT)  # and then the server crashes, too
    server.start()
    with RegionMemory.open(address, statement((2,), norm)) as memory:
        check_nothing_lost(memory, diary, norm)


def test_the_judge_knows_balls_that_touch_from_balls_that_meet():
    l2 = BALLS["l2"]
    touching = [(0, l2(np.zeros(2), 1.0)), (1, l2(np.array([3.0, 4.0]), 4.0))]
    assert meeting_pairs(touching) == []
    assert meeting_pairs([touching[0], (1, l2(np.array([3.0, 4.0]), np.nextafter(4.0, 5)))]) == [(0, 1)]
    assert holds_ball(l2(np.zeros(1), 1.0), l2(np.array([0.25]), 0.75))
    assert not holds_ball(l2(np.zeros(1), 1.0), l2(np.array([0.25]), np.nextafter(0.75, 1)))


# ------------------------------------------------------------------ with ellipsoids and cross-polytopes among the balls


STRETCHED: dict[str, Any] = {"l2": Ellipsoid, "l1": CrossPolytope}


def region_at(x: np.ndarray, norm: str, rng: np.random.Generator) -> CertifiedRegion:
    """A ball, a body of one of a few shapes that recur, or of a shape of its own; small or large."""
    size = (
        float(10.0 ** rng.uniform(-1.5, 0.3)) if rng.random() < 0.9 else float(10.0 ** rng.uniform(-90, -1))
    )
    kind = rng.integers(4)
    if kind == 0:
        return BALLS[norm](x, size)
    shape_of = np.random.default_rng(int(rng.integers(2))) if kind < 3 else rng
    return STRETCHED[norm](x, np.exp(shape_of.normal(size=x.shape) * 1.5) * size)


def on_edge(body: GaugeBody, rng: np.random.Generator, factor: float = 1.0) -> np.ndarray:
    direction = rng.normal(size=body.axes.size)
    if rng.random() < 0.3:
        direction *= rng.permutation(body.axes.size) == 0
    direction /= np.linalg.norm(direction, body.order)
    return np.asarray(body.center + (direction * body.axes * factor).reshape(body.center.shape))


def awkward(bodies: list[GaugeBody], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Somewhere new, on a center, on an edge to the last bit, or between two regions."""
    kind = rng.integers(6)
    if not bodies or kind == 0:
        return rng.normal(size=shape)
    body = bodies[int(rng.integers(len(bodies)))]
    if kind == 1:
        point = np.array(body.center)
    elif kind < 5:
        factors = [1.0, 1.0, 1 - 1e-15, 1 + 1e-15, 1 - 1e-12, 1 + 1e-12, 1 - 1e-9, 0.999, 0.5, 1.3]
        point = on_edge(body, rng, factors[int(rng.integers(len(factors)))])
    else:
        point = body.center + (bodies[int(rng.integers(len(bodies)))].center - body.center) * rng.random()
    return beside(point, rng) if rng.random() < 0.5 else point


def meeting(labelled: list[tuple[int, GaugeBody]]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for j in range(len(labelled))
        for i in range(j)
        if labelled[i][0] != labelled[j][0] and not certainly_disjoint(labelled[i][1], labelled[j][1])
    ]


def check_stretched(answers: list[tuple[np.ndarray, MemoryAnswer]], memory: RegionMemory) -> None:
    stored = dict(memory.answers())
    assert meeting([(answer.predicted, answer.region) for answer in stored.values()]) == []
    claims: list[tuple[int, GaugeBody]] = []
    for x, answer in answers:
        if answer.record is not None:
            vouching = stored[answer.record].region
            assert holds_exactly(vouching, x)
            assert answer.region is None or certainly_inside(vouching, answer.region)
        assert {label for label, claim in claims if holds_exactly(claim, x)} <= {answer.predicted}
        if answer.region is not None:
            claims.append((answer.predicted, answer.region))


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("shape", "seeds"), [((1,), 3), ((2,), 6), ((3, 2), 4), ((1, 4, 4), 2)])
@pytest.mark.parametrize("questions", [100, pytest.param(200, marks=pytest.mark.slow)])
def test_no_order_of_questions_breaks_it_with_stretched_regions(norm, shape, seeds, questions):
    sources, kinds = set(), set()
    for seed in range(seeds if questions > 100 else 1):
        rng = np.random.default_rng([seed, len(shape)])
        memory = RegionMemory(ListStore(statement(shape, norm)))
        answers: list[tuple[np.ndarray, MemoryAnswer]] = []
        bodies: list[GaugeBody] = []
        for _ in range(questions):
            x = awkward(bodies, shape, rng)
            label = int(rng.integers(3))
            offered = Toy(label, region_at(x, norm, rng)) if rng.random() < 0.95 else Toy(ABSTAIN, None)
            answer = memory.answer(x, lambda _, offered=offered: offered)
            answers.append((x, answer))
            sources.add(answer.source)
            if answer.source in ("certified", "shrunk"):
                region = memory.stored_answer(answer.record).region
                bodies.append(region)
                kinds.add(region.kind)
                assert type(region) is type(offered.region)
                assert (region.axes <= offered.region.axes).all()
                assert (answer.source == "certified") == np.array_equal(region.axes, offered.region.axes)
            if not answer.abstained:
                again = memory.answer(x, never)
                assert (again.predicted, again.source) == (answer.predicted, "memory")
        check_stretched(answers, memory)
    assert sources == {"memory", "certified", "shrunk", "abstained"}
    assert kinds == {norm, STRETCHED[norm].kind}


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 8, 8)])
def test_nor_does_any_float_inside_a_stretched_claim(norm, shape):
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(15 if len(shape) == 1 else 8):
        memory = RegionMemory(ListStore(statement(shape, norm)))
        center = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3)
        axes = np.exp(rng.normal(size=shape) * 2) * 10.0 ** rng.uniform(-3, 3)
        first = memory.answer(center, lambda x, axes=axes: Toy(1, STRETCHED[norm](x, axes)))
        second = memory.answer(on_edge(first.region, rng, 0.5), never)
        for claim in (first.region, second.region):
            assert certainly_inside(memory.stored_answer(1).region, claim)
            for _ in range(8):
                x = beside(on_edge(claim, rng), rng)
                if holds_exactly(claim, x):
                    inside += 1
                    assert memory.answer(x, never).predicted == 1
    assert inside > 20


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_no_more_of_a_stretched_region_is_cut_off_than_needed(norm):
    """The stored region touches the one of the other class: a hair more, and they would meet."""
    rng = np.random.default_rng(6)
    for _ in range(30):
        memory = RegionMemory(ListStore(statement((4,), norm)))
        a, b = rng.normal(size=(2, 4))
        first, second = np.exp(rng.normal(size=(2, 4)))
        order = STRETCHED[norm].order
        first *= np.linalg.norm((a - b) / first, order) / 3  # so that b lies at three times its edge
        second *= np.linalg.norm((a - b) / second, order) * 3
        memory.answer(a, lambda x, first=first: Toy(0, STRETCHED[norm](x, first)))
        answer = memory.answer(b, lambda x, second=second: Toy(1, STRETCHED[norm](x, second)))
        assert answer.source == "shrunk"
        kept, cut = (memory.stored_answer(i).region for i in (1, 2))
        assert certainly_disjoint(kept, cut)
        assert not certainly_disjoint(kept, STRETCHED[norm](b, cut.semi_axes * (1 + 1e-6)))
        ratios = cut.semi_axes / second
        assert ratios.max() - ratios.min() < 1e-14  # the shape is kept


@pytest.mark.parametrize(("kind", "norm"), [(DiagonalGaussian, "l2"), (DiagonalUniform, "l1")])
def test_a_smoothed_classifiers_certificates_fit(kind, norm):
    def nearest(batch: np.ndarray) -> np.ndarray:
        return batch.argmax(axis=1)

    plan = CertifyPlan(kind(np.array([0.1, 0.2, 0.3, 0.4])), n0=20, n=200)
    classifier = SmoothedClassifier(nearest, plan, outputs="labels", classes=4, input_shape=(4,))
    about = MemoryStatement.of(classifier, (4,))
    assert (about.norm, about.noise) == (norm, plan.noise.name)
    memory = RegionMemory(ListStore(about))
    for i, x in enumerate(np.eye(4)[:3]):
        answer = memory.answer(x, lambda x: classifier.certify(x))
        assert (answer.predicted, answer.source) == (i, "certified")
        assert answer.radius == pytest.approx(answer.certified.radius)
        assert answer.volume_radius == pytest.approx(answer.certified.volume_radius)
        assert memory.stored_answer(answer.record).facts["sigma"] == plan.noise.sigma
        assert memory.answer(x + 1e-3, never).predicted == i
