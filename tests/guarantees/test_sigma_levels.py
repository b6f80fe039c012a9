"""“One classifier with a σ for each input”: what a chooser's median and the levels' certificates prove together.

On a line everything is known. The chooser's level is the number of ``turns`` that x + noise exceeds, so that the median
level of x is the number of turns below x, and the distance to a turn is exactly how far the median stays; the
classifier of level k answers 0 below its ``edge``, so that its true radius is the distance to that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from smoothcert import SmoothedClassifier
from smoothcert.architectures.weights import load_model
from smoothcert.bounds import BOUNDS, ClassBounds
from smoothcert.certificates import certificate_for
from smoothcert.datasets.base import DATASETS
from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES, on_grid
from smoothcert.sampling import Execution
from smoothcert.sampling.models import FunctionClassifier
from smoothcert.sigma_levels import (
    CHOOSER_BOUND,
    CHOOSER_PART,
    ConstantChooser,
    LevelEvidence,
    StatisticChooser,
    reaches,
)
from smoothcert.sigma_levels.median import combined_radius
from smoothcert.smoothing import level_plans, level_stages
from smoothcert.smoothing.levelled import LevelledClassifier
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally
from tests.guarantees.coverage import assert_rate_within, hard_tally

ALPHA = 0.1
TRIALS = 480


@dataclass(frozen=True)
class Line:
    """Levels on a line, and what is true of them."""

    turns: tuple[float, ...]
    edges: tuple[float, ...]
    sigmas: tuple[float, ...]
    chooser_sigma: float

    def level_of(self, x: float) -> int:
        """The median level."""
        return sum(turn < x for turn in self.turns)

    def answer(self, x: float) -> int:
        """G."""
        return int(x >= self.edges[self.level_of(x)])

    def radius(self, x: float) -> float:
        """How far around x G answers the same, to a thousandth."""
        for step in range(1, 8000):
            if any(self.answer(x + sign * step / 1000) != self.answer(x) for sign in (-1, 1)):
                return step / 1000
        return np.inf

    def choose(self, batch: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.turns, batch[:, 0].astype(np.float64)).astype(np.int64)

    def models(self) -> list[FunctionClassifier]:
        def below(edge: float) -> Any:
            return lambda batch: (batch[:, 0] >= edge).astype(np.int64)

        return [
            FunctionClassifier(below(edge), "labels", 2, f"level {k}") for k, edge in enumerate(self.edges)
        ]

    def classifier(self, **fields: Any) -> LevelledClassifier:
        options: dict[str, Any] = {
            "n": 120,
            "n0": 20,
            "chooser_n": 120,
            "chooser_n0": 20,
            "alpha": ALPHA,
            "seed": 0,
        }
        return LevelledClassifier(
            self.models(),
            FunctionClassifier(self.choose, "labels", len(self.sigmas), "turns"),
            sigmas=self.sigmas,
            chooser_sigma=self.chooser_sigma,
            input_shape=(1,),
            execution=Execution(workers=1),
            **(options | fields),
        )


LINES = {
    # The next level answers otherwise: the chooser alone keeps G from it, up to the turn.
    "the chooser limits": (Line((0.5,), (3.0, 0.3), (0.5, 1.0), 0.7), 0.5),
    "below, too": (Line((-0.4,), (-5.0, 3.0), (0.5, 1.0), 0.7), 0.4),
    # The turn is close, and the next level answers the same for a while.
    "another level limits": (Line((0.1,), (3.0, 0.6), (0.5, 1.0), 0.7), 0.6),
    "another class next door": (Line((0.3,), (3.0, -2.0), (0.5, 1.0), 0.7), 0.3),
    "home limits": (Line((0.9,), (0.4, 3.0), (0.5, 1.0), 0.7), 0.4),
    "three levels": (Line((0.2, 0.7), (3.0, 0.9, 0.6), (0.25, 0.5, 1.0), 1.0), 0.7),
    "no level is sure": (Line((0.0, 0.02), (0.5, 0.5, 0.5), (0.25, 0.5, 1.0), 1.0), 0.5),
}


EVERY_DAY = {"the chooser limits", "another level limits", "another class next door"}
EVERY_LINE = [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in LINES]


def certificates(line: Line, **fields: Any) -> list[Any]:
    classifier = line.classifier(**fields)
    answers = list(classifier.certify_each((i, np.zeros(1)) for i in range(TRIALS)))
    assert sorted(answer.index for answer in answers) == list(range(TRIALS))
    return answers


@pytest.mark.parametrize("name", EVERY_LINE)
def test_certificates_are_false_no_more_often_than_alpha(name: str) -> None:
    line, true_radius = LINES[name]
    assert line.radius(0.0) == pytest.approx(true_radius, abs=2e-3)
    answers = certificates(line)
    false = [
        a for a in answers if not a.abstained and (a.predicted != line.answer(0.0) or a.radius > true_radius)
    ]
    assert_rate_within(len(false), TRIALS, ALPHA)
    assert sum(not a.abstained for a in answers) > TRIALS / 4  # or there would be nothing to be wrong about


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the chooser limits", "another level limits", "below, too"])
def test_the_same_under_uniform_noise(name: str) -> None:
    """A probability falls by the distance over 2λ: reaches and radii are exact here, too."""
    line, true_radius = LINES[name]
    answers = certificates(line, noise="uniform")
    assert {answer.norm for answer in answers} == {"l1"}
    false = [
        a for a in answers if not a.abstained and (a.predicted != line.answer(0.0) or a.radius > true_radius)
    ]
    assert_rate_within(len(false), TRIALS, ALPHA)
    assert sum(not a.abstained for a in answers) > TRIALS / 4


def broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways to get it wrong."""
    if name == "other levels are forgotten":
        monkeypatch.setattr(level_plans, "combined_radius", lambda reached, radii: max(radii))
    elif name == "the chooser is trusted":
        monkeypatch.setattr(level_plans, "reaches_of", lambda plan, votes, home: _never(plan, home))
        monkeypatch.setattr(level_stages, "reaches_of", lambda plan, votes, home: _never(plan, home))
    elif name == "the share of votes for its probability":

        def share(tally: Tally, chosen: int, _: float) -> ClassBounds:
            p = min(tally.counts[chosen] / tally.n, 1 - 1e-6)
            return ClassBounds(p, 1 - p)

        plain = replace(BOUNDS["mixture"], compute=share)

        def estimated(votes: Tally, home: int, noise: Any, *_: Any) -> list[float]:
            return reaches(votes, home, noise, plain, 0.5, 0.0)

        monkeypatch.setattr(level_plans, "reaches", estimated)
    elif name == "a level needn't agree on the class":
        original = level_plans.decide
        monkeypatch.setattr(level_plans, "decide", lambda *args: _answering(original(*args), 0))


def _never(plan: Any, home: int) -> list[float]:
    return [0.0 if k == home else np.inf for k in range(len(plan.sigma_levels.sigmas))]


def _answering(answer: Any, candidate: int) -> Any:
    radius = answer.radius or 1.0
    return replace(answer, candidate=candidate, predicted=candidate, radius=radius)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("other levels are forgotten", "the chooser limits"),
        pytest.param("other levels are forgotten", "another level limits", marks=pytest.mark.slow),
        ("the chooser is trusted", "the chooser limits"),
        pytest.param("the share of votes for its probability", "the chooser limits", marks=pytest.mark.slow),
        ("a level needn't agree on the class", "another class next door"),
    ],
)
def test_wrong_ways_are_noticed(how: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(how, monkeypatch)
    with pytest.raises(AssertionError):
        test_certificates_are_false_no_more_often_than_alpha(line)


@pytest.mark.parametrize("name", EVERY_LINE)
def test_predictions_are_false_no_more_often_than_alpha(name: str) -> None:
    line, _ = LINES[name]
    classifier = line.classifier()
    answers = list(classifier.predict_each(((i, np.full(1, 0.05)) for i in range(TRIALS)), n=120))
    wrong = [a for a in answers if not a.abstained and a.predicted != line.answer(0.05)]
    assert_rate_within(len(wrong), TRIALS, ALPHA)


def test_certificates_agree_with_predictions_inside_their_regions() -> None:
    line, _ = LINES["three levels"]
    classifier = line.classifier(n=4000, chooser_n=4000, alpha=0.001)
    certified = classifier.certify_batch(np.linspace(-1.5, 1.5, 13)[:, None])
    inside = [
        (one.predicted, one.region.center + share * one.radius)
        for one in certified
        if one.region is not None
        for share in (-0.99, -0.5, 0.5, 0.99)
    ]
    answers = classifier.predict(np.array([x for _, x in inside]), n=4000)
    assert isinstance(answers, list)
    assert sum(not a.abstained for a in answers) > len(inside) / 2
    assert not [a for a, (c, _) in zip(answers, inside) if not a.abstained and a.predicted != c]


def test_a_constant_chooser_gives_the_certificates_of_its_sigma() -> None:
    line, _ = LINES["three levels"]
    x = np.linspace(-1, 1, 5)[:, None]
    model = line.models()[1]
    fixed = SmoothedClassifier(model, sigma=0.5, n=500, alpha=0.01, seed=3, input_shape=(1,)).certify_batch(x)
    levelled = LevelledClassifier(
        model, ConstantChooser(1), sigmas=line.sigmas, n=500, alpha=0.01, seed=3, input_shape=(1,)
    ).certify_batch(x)
    assert [a.radius for a in levelled] == [a.radius for a in fixed]
    assert [a.predicted for a in levelled] == [a.predicted for a in fixed]
    assert [a.estimation for a in levelled] == [a.estimation for a in fixed]


def test_so_it_does_off_the_grids_of_its_other_levels() -> None:
    """The grid of σ = 2 is sixteen times as coarse: inputs were rounded to it, and votes were about other points."""
    x = np.random.default_rng(0).normal(size=(8, 1))
    options: dict[str, Any] = {"n": 500, "alpha": 0.01, "seed": 3, "input_shape": (1,)}
    model = LINES["three levels"][0].models()[0]
    fixed = SmoothedClassifier(model, sigma=0.12, **options).certify_batch(x)
    levelled = LevelledClassifier(model, ConstantChooser(0), sigmas=(0.12, 2.0), **options).certify_batch(x)
    for a, b in zip(levelled, fixed):
        assert (a.estimation, a.radius, a.shift) == (b.estimation, b.radius, b.shift)
        assert a.radius_off_grid == b.radius_off_grid
        assert (a.region is None) == (b.region is None)


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_a_reach_is_the_exact_distance_for_the_worst_chooser(noise: str) -> None:
    """A turn at distance t from x: with the true probabilities as bounds the reach is t, in ℓ2 and ℓ1."""
    sigma, turn = 0.8, 0.3
    kind = NOISES[noise](sigma)
    p = float(ndtr(turn / sigma) if noise == "gaussian" else 0.5 + turn / (2 * np.sqrt(3) * sigma))

    truth = replace(BOUNDS["mixture"], compute=lambda *_: ClassBounds(p, 1 - p))
    found = reaches(hard_tally((90, 10)), 0, kind, truth, 0.1, 0.0)
    assert found[0] == 0.0
    assert found[1] == pytest.approx(turn, rel=1e-9)


def test_which_side_of_home_a_reach_looks_at() -> None:
    """Of levels above home the votes below them count, of levels below home the votes above them."""
    votes, noise, bound = hard_tally((5, 900, 60, 35)), NOISES["gaussian"](1.0), BOUNDS["clopper-pearson"]
    found = reaches(votes, 1, noise, bound, 0.01, 0.0)
    expected = [stats.norm.ppf(stats.beta.ppf(0.01, count, 1000 - count + 1)) for count in (995, 905, 965)]
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    assert found[1] == 0.0
    assert found[2:] == pytest.approx(expected[1:], rel=1e-9)
    assert combined_radius([0.0, 0.5, 2.0], [1.0, 0.7, 0.0]) == 0.7
    assert combined_radius([0.0, 0.5, 2.0], [1.0, 0.0, 0.0]) == 0.5


@cache
def _radius(bound: str, sigma: float, alpha: float, ahead: int, n: int) -> float:
    """Of a class, or an event, with so many of n votes; one-sided, so that counts alone decide."""
    tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, n, (ahead, n - ahead))
    return certificate_for(NOISES["gaussian"](sigma)).radius(BOUNDS[bound](tally, 0, alpha))


@pytest.mark.slow
def test_no_two_of_many_certificates_contradict_each_other() -> None:
    """10⁵ pairs of points of lines with random turns and edges: regions of different classes are apart."""
    rng = np.random.default_rng(5)
    alpha, n, sigmas, chooser_sigma = 0.001, 1000, (0.25, 0.5, 1.0), 1.0
    level_alpha, chooser_alpha = alpha * 31 / 32, alpha / CHOOSER_PART
    contradictions = certified = 0
    for _ in range(200):
        turns = np.sort(rng.normal(0, 0.7, 2))
        edges = rng.normal(0, 0.7, 3)
        points = np.sort(rng.normal(0, 1.0, 40))
        answers = []
        shares = ndtr((turns[None] - points[:, None]) / chooser_sigma)
        cells = np.column_stack([shares[:, 0], np.diff(shares, axis=1), 1 - shares[:, 1]])
        for x, probabilities in zip(points, cells):
            probabilities = np.clip(probabilities, 0, 1) / np.clip(probabilities, 0, 1).sum()
            home = int(np.searchsorted(np.cumsum(rng.multinomial(100, probabilities)), 50))
            votes = rng.multinomial(n, probabilities)
            zero = [int(rng.binomial(n, ndtr((edge - x) / sigma))) for edge, sigma in zip(edges, sigmas)]
            candidate = int(2 * zero[home] < n)
            reached, radii = [], []
            for k, sigma in enumerate(sigmas):
                ahead = int(votes[:k].sum() if k > home else votes[k + 1 :].sum())
                reach = 0.0 if k == home else _radius(CHOOSER_BOUND, chooser_sigma, chooser_alpha, ahead, n)
                reached.append(reach)
                count = zero[k] if candidate == 0 else n - zero[k]
                radii.append(_radius("clopper-pearson", sigma, level_alpha, count, n))
            radius = combined_radius(reached, radii)
            certified += radius > 0
            answers.append((x, candidate, radius))
        line = Line(tuple(turns), tuple(edges), sigmas, chooser_sigma)
        for x, candidate, radius in answers:
            if radius > 0 and line.answer(x) != candidate:
                contradictions += 1
        contradictions += sum(
            a[1] != b[1] and a[2] > 0 and b[2] > 0 and abs(a[0] - b[0]) < a[2] + b[2]
            for i, a in enumerate(answers)
            for b in answers[:i]
        )
    assert certified > 5000
    # A false certificate is one in a thousand at most, and contradicts up to 39 others: none was false here.
    assert contradictions == 0


def test_streams_of_stages_have_nothing_in_common() -> None:
    seeds = {
        level_plans.stage_seed(seed, stage)
        for seed in range(50)
        for stage in ("chooser", "level 0", "level 1")
    }
    assert len(seeds) == 150
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bits_for_any_workers_and_order(workers: int) -> None:
    line, _ = LINES["three levels"]
    points = [(i, np.array([x])) for i, x in enumerate(np.linspace(-1, 1, 24))]
    plain = {a.index: a for a in line.classifier().certify_each(points)}
    other = line.classifier().on(Execution(workers=workers, batch=512))
    for answer in other.certify_each(reversed(points)):
        assert answer.levels == plain[answer.index].levels
        assert answer.radius == plain[answer.index].radius


def test_votes_of_other_streams_are_refused() -> None:
    line, _ = LINES["three levels"]
    classifier = line.classifier()
    (answer,) = classifier.certify_each([(4, np.zeros(1))])
    plan, evidence = classifier.prepare((1,)), answer.levels
    assert isinstance(evidence, LevelEvidence)
    assert level_plans.decide_levels(np.zeros(1), plan, evidence).radius == answer.radius
    assert evidence.chooser is not None
    foreign = replace(evidence.chooser, stream=replace(evidence.chooser.stream, seed=1))
    other = replace(evidence.chooser, stream=replace(evidence.chooser.stream, index=9))
    for wrong in (
        replace(evidence, chooser=foreign),
        replace(evidence, chooser=other),
        replace(evidence, chooser=evidence.chosen),
        replace(evidence, chosen=evidence.chooser),
        replace(evidence, home=2 - evidence.home),
        replace(evidence, votes=evidence.votes + evidence.votes[:1]),
        replace(evidence, votes=()),
    ):
        with pytest.raises(InvalidValueError):
            level_plans.decide_levels(np.zeros(1), plan, wrong)


def test_inputs_lie_on_the_grid_of_every_stage() -> None:
    line, _ = LINES["three levels"]
    classifier = line.classifier()
    plan = classifier.prepare((1,))
    point = plan.point(np.array([0.1234567]))
    for noise in classifier.noises():
        assert on_grid(noise, plan.grid, (1,)).point(point).values == point
    (answer,) = classifier.certify_each([(0, np.array([0.1234567]))])
    assert answer.region is None or answer.region.center == point
    assert answer.shift == pytest.approx(abs(0.1234567 - point[0]))


def test_an_array_that_is_filled_again_was_certified_as_it_was() -> None:
    line, _ = LINES["three levels"]
    room = np.zeros(1)

    def changing() -> Any:
        for i in range(20):
            room[:] = 0.25 if i % 2 else 0.0
            yield i, room

    centers = {
        a.index: a.region.center[0]
        for a in line.classifier().certify_each(changing())
        if a.region is not None
    }
    assert len(centers) > 5
    assert all(abs(center - (0.25 if i % 2 else 0.0)) < 0.01 for i, center in centers.items())  # of the grid


def test_an_input_that_certifies_nothing_costs_no_more_votes() -> None:
    line, _ = LINES["home limits"]
    classifier = line.classifier(alpha=0.001)
    (answer,) = classifier.certify_each([(0, np.array([0.4]))])
    assert answer.predicted == ABSTAIN
    assert answer.levels is not None
    assert answer.levels.chooser is None
    assert answer.levels.n == 20 + 20 + 120


def test_real_inputs_moved_towards_each_other(digits_model: Any) -> None:
    """From each certified digit most of its radius towards digits of other classes: G's answer stays."""
    dataset = DATASETS["digits"]("test", None)
    inputs = [np.asarray(dataset.input(i)) for i in range(0, 160, 8)]
    model, _ = load_model(digits_model)
    classifier = LevelledClassifier(
        model,
        StatisticChooser("spread", (0.45,)),
        sigmas=(0.12, 0.25),
        n=2000,
        seed=2,
        input_shape=inputs[0].shape,
    )
    certified = classifier.certify_batch(np.stack(inputs))
    assert {one.levels.home for one in certified if one.levels is not None} == {0, 1}
    moved = [
        (one.predicted, x + 0.98 * one.radius * (other - x) / np.linalg.norm(other - x))
        for one, x in zip(certified, inputs)
        for other, target in zip(inputs, certified)
        if not one.abstained and target.predicted not in (one.predicted, ABSTAIN)
    ][::7]
    answers = classifier.predict(np.stack([x for _, x in moved]), n=500)
    assert isinstance(answers, list)
    assert sum(not answer.abstained for answer in answers) > len(moved) / 2
    assert not [c for answer, (c, _) in zip(answers, moved) if answer.predicted not in (c, ABSTAIN)]
