"""The memory's promises with ellipsoids and cross-polytopes among balls, judged in exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.noise import DiagonalGaussian, DiagonalUniform
from smoothcert.region_memory import MemoryAnswer, MemoryStatement, RegionMemory
from smoothcert.regions import CertifiedRegion, CrossPolytope, Ellipsoid
from smoothcert.regions.gauge import GaugeBody
from smoothcert.tally import ABSTAIN
from tests.region_memory.stretched_judge import certainly_disjoint, certainly_inside, holds
from tests.region_memory.toys import BALLS, ListStore, Toy, beside, never, statement

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


def check(answers: list[tuple[np.ndarray, MemoryAnswer]], memory: RegionMemory) -> None:
    stored = dict(memory.answers())
    assert meeting([(answer.predicted, answer.region) for answer in stored.values()]) == []
    claims: list[tuple[int, GaugeBody]] = []
    for x, answer in answers:
        if answer.record is not None:
            vouching = stored[answer.record].region
            assert holds(vouching, x)
            assert answer.region is None or certainly_inside(vouching, answer.region)
        assert {label for label, claim in claims if holds(claim, x)} <= {answer.predicted}
        if answer.region is not None:
            claims.append((answer.predicted, answer.region))


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("shape", "seeds"), [((1,), 3), ((2,), 6), ((3, 2), 4), ((1, 4, 4), 2)])
@pytest.mark.parametrize("questions", [100, pytest.param(200, marks=pytest.mark.slow)])
def test_no_order_of_questions_breaks_the_promise(
    norm: str, shape: tuple[int, ...], seeds: int, questions: int
) -> None:
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
        check(answers, memory)
    assert sources == {"memory", "certified", "shrunk", "abstained"}
    assert kinds == {norm, STRETCHED[norm].kind}


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 8, 8)])
def test_every_float_inside_a_claim_is_answered_with_its_class(norm: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(30 if len(shape) == 1 else 15):
        memory = RegionMemory(ListStore(statement(shape, norm)))
        center = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3)
        axes = np.exp(rng.normal(size=shape) * 2) * 10.0 ** rng.uniform(-3, 3)
        first = memory.answer(center, lambda x, axes=axes: Toy(1, STRETCHED[norm](x, axes)))
        second = memory.answer(on_edge(first.region, rng, 0.5), never)
        for claim in (first.region, second.region):
            assert claim is not None
            assert certainly_inside(memory.stored_answer(1).region, claim)
            for _ in range(8):
                x = beside(on_edge(claim, rng), rng)
                if holds(claim, x):
                    inside += 1
                    assert memory.answer(x, never).predicted == 1
    assert inside > 40


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_what_is_cut_off_is_no_more_than_needed(norm: str) -> None:
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
def test_a_smoothed_classifiers_certificates_fit(kind: type[DiagonalGaussian], norm: str) -> None:
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
