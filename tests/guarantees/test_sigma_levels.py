"""“One classifier with a σ for each input”: what a chooser's median and the levels' certificates prove together.

On a line everything is known. The chooser's level is the number of ``turns`` that x + noise exceeds, so that the median
level of x is the number of turns below x, and the distance to a turn is exactly how far the median stays; the
classifier of level k answers 0 below its ``edge``, so that its true radius is the distance to that.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from smoothcert import SmoothedClassifier
from smoothcert.bounds.base import BOUNDS, ClassBounds
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError
from smoothcert.experimental.levels import procedures
from smoothcert.experimental.levels.choosers import ConstantChooser
from smoothcert.experimental.levels.classifier import LevelledClassifier
from smoothcert.experimental.levels.procedures import combined_radius, reaches
from smoothcert.models.function import FunctionClassifier
from smoothcert.perturb.base import NOISES
from smoothcert.perturb.grid import on_grid
from smoothcert.runs.side_files import LevelEvidence
from smoothcert.tally import ABSTAIN, Tally
from tests.guarantees.exact import assert_rate_within, hard_tally

ALPHA = 0.1
TRIALS = 480  # where a certificate may be false
FEWER = 240  # where far more than α would be, or a longer test is among the slow ones


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
        votes = {"n": 120, "n0": 20, "chooser_n": 120, "chooser_n0": 20}
        options: dict[str, Any] = votes | {"alpha": ALPHA, "seed": 0}
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


def check_certificates(name: str, trials: int = TRIALS, **fields: Any) -> None:
    line, true_radius = LINES[name]
    assert line.radius(0.0) == pytest.approx(true_radius, abs=2e-3)
    answers = list(line.classifier(**fields).certify_each((i, np.zeros(1)) for i in range(trials)))
    assert sorted(answer.index for answer in answers) == list(range(trials))
    assert {answer.norm for answer in answers} == {"l1" if fields else "l2"}
    given = [answer for answer in answers if not answer.abstained]
    assert len(given) > trials / 4  # or there would be nothing to be wrong about
    false = sum(answer.predicted != line.answer(0.0) or answer.radius > true_radius for answer in given)
    assert_rate_within(false, trials, ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_certificates_are_false_no_more_often_than_alpha(name):
    check_certificates(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the chooser limits", "another level limits", "below, too"])
def test_the_same_under_uniform_noise(name):
    """A probability falls by the distance over 2λ: reaches and radii are exact here, too."""
    check_certificates(name, noise="uniform")


def estimated(votes: Tally, home: int, noise: Any, *_: Any) -> list[float]:
    """The share of votes in place of a bound for its probability."""

    def share(tally: Tally, chosen: int, _: float) -> ClassBounds:
        p = min(tally.counts[chosen] / tally.n, 1 - 1e-6)
        return ClassBounds(p, 1 - p)

    return reaches(votes, home, noise, replace(BOUNDS["mixture"], compute=share), 0.5, 0.0)


def trusting(plan: Any, votes: Any, home: int) -> list[float]:
    """As if the chooser kept G from every other level."""
    return [0.0 if k == home else np.inf for k in range(len(plan.sigma_levels.sigmas))]


def agreeing(*args: Any, decide: Any = procedures.decide) -> Any:
    """Whatever class a level is sure of counts as class 0."""
    answer = decide(*args)
    evidence = replace(answer.evidence, candidate=0)
    return replace(answer, predicted=0, radius=answer.radius or 1.0, evidence=evidence)


@pytest.mark.parametrize(
    ("name", "wrong", "line"),
    [
        ("combined_radius", lambda reached, radii: max(radii), "the chooser limits"),
        pytest.param(
            "combined_radius",
            lambda reached, radii: max(radii),
            "another level limits",
            marks=pytest.mark.slow,
        ),
        ("reaches_of", trusting, "the chooser limits"),
        pytest.param("reaches", estimated, "the chooser limits", marks=pytest.mark.slow),
        ("decide", agreeing, "another class next door"),
    ],
)
def test_wrong_ways_are_noticed(name, wrong, line, monkeypatch):
    monkeypatch.setattr(procedures, name, wrong)
    with pytest.raises(AssertionError):
        check_certificates(line, FEWER)


@pytest.mark.parametrize(
    ("name", "trials"),
    [
        *((name, FEWER) for name in sorted(EVERY_DAY)),
        *(pytest.param(name, TRIALS, marks=pytest.mark.slow) for name in LINES),
    ],
)
def test_predictions_are_false_no_more_often_than_alpha(name, trials):
    line, _ = LINES[name]
    classifier = line.classifier()
    answers = list(classifier.predict_each(((i, np.full(1, 0.05)) for i in range(trials)), n=120))
    wrong = [a for a in answers if not a.abstained and a.predicted != line.answer(0.05)]
    assert_rate_within(len(wrong), trials, ALPHA)


def test_certificates_agree_with_predictions_inside_their_regions():
    line, _ = LINES["three levels"]
    classifier = line.classifier(n=4000, chooser_n=4000, alpha=0.001)
    certified = classifier.certify(np.linspace(-1.5, 1.5, 13)[:, None])
    inside = [
        (one.predicted, one.region.center + share * one.radius)
        for one in certified
        if one.region is not None
        for share in (-0.99, -0.5, 0.5, 0.99)
    ]
    answers = classifier.predict(np.array([x for _, x in inside]), n=4000)
    assert sum(not a.abstained for a in answers) > len(inside) / 2
    assert not [a for a, (c, _) in zip(answers, inside) if not a.abstained and a.predicted != c]


@pytest.mark.parametrize(
    ("sigma", "sigmas", "points"),
    [
        (0.5, (0.25, 0.5, 1.0), np.linspace(-1, 1, 5)),
        # The grid of σ = 2 is sixteen times as coarse: inputs were rounded to it, and votes were about other points.
        (0.12, (0.12, 2.0), np.random.default_rng(0).normal(size=8)),
    ],
)
def test_a_constant_chooser_gives_the_certificates_of_its_sigma(sigma, sigmas, points):
    options: dict[str, Any] = {"n": 500, "alpha": 0.01, "seed": 3, "input_shape": (1,)}
    level = sigmas.index(sigma)
    model = LINES["three levels"][0].models()[level]
    fixed = SmoothedClassifier(model, sigma=sigma, **options).certify(points[:, None])
    chosen = LevelledClassifier(model, ConstantChooser(level), sigmas=sigmas, **options).certify(
        points[:, None]
    )
    for a, b in zip(chosen, fixed, strict=True):
        assert (a.estimation, a.predicted, a.radius, a.shift) == (
            b.estimation,
            b.predicted,
            b.radius,
            b.shift,
        )
        assert a.radius_off_grid == b.radius_off_grid
        assert (a.region is None) == (b.region is None)


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_a_reach_is_the_exact_distance_for_the_worst_chooser(noise):
    """A turn at distance t from x: with the true probabilities as bounds the reach is t, in ℓ2 and ℓ1."""
    sigma, turn = 0.8, 0.3
    kind = NOISES[noise](sigma)
    p = float(ndtr(turn / sigma) if noise == "gaussian" else 0.5 + turn / (2 * np.sqrt(3) * sigma))

    truth = replace(BOUNDS["mixture"], compute=lambda *_: ClassBounds(p, 1 - p))
    found = reaches(hard_tally((90, 10)), 0, kind, truth, 0.1, 0.0)
    assert found[0] == 0.0
    assert found[1] == pytest.approx(turn, rel=1e-9)


def test_which_side_of_home_a_reach_looks_at():
    """Of levels above home the votes below them count, of levels below home the votes above them."""
    votes, noise, bound = hard_tally((5, 900, 60, 35)), NOISES["gaussian"](1.0), BOUNDS["clopper-pearson"]
    found = reaches(votes, 1, noise, bound, 0.01, 0.0)
    expected = [stats.norm.ppf(stats.beta.ppf(0.01, count, 1000 - count + 1)) for count in (995, 905, 965)]
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    assert found[1] == 0.0
    assert found[2:] == pytest.approx(expected[1:], rel=1e-9)
    assert combined_radius([0.0, 0.5, 2.0], [1.0, 0.7, 0.0]) == 0.7
    assert combined_radius([0.0, 0.5, 2.0], [1.0, 0.0, 0.0]) == 0.5


def test_streams_of_stages_have_nothing_in_common():
    stages = ("chooser", "level 0", "level 1")
    seeds = {procedures.stage_seed(seed, stage) for seed in range(50) for stage in stages}
    assert len(seeds) == 150
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bits_for_any_workers_and_order(workers):
    line, _ = LINES["three levels"]
    points = [(i, np.array([x])) for i, x in enumerate(np.linspace(-1, 1, 24))]
    plain = {a.index: a for a in line.classifier().certify_each(points)}
    other = line.classifier().on(Execution(workers=workers, batch=512))
    for answer in other.certify_each(reversed(points)):
        assert answer.levels == plain[answer.index].levels
        assert answer.radius == plain[answer.index].radius


def test_votes_of_other_streams_are_refused():
    line, _ = LINES["three levels"]
    classifier = line.classifier()
    (answer,) = classifier.certify_each([(4, np.zeros(1))])
    plan, evidence = classifier.prepare((1,)), answer.levels
    assert isinstance(evidence, LevelEvidence)
    assert procedures.decide_levels(np.zeros(1), plan, evidence).radius == answer.radius
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
            procedures.decide_levels(np.zeros(1), plan, wrong)


def test_inputs_lie_on_the_grid_of_every_stage():
    line, _ = LINES["three levels"]
    classifier = line.classifier()
    plan = classifier.prepare((1,))
    point = plan.point(np.array([0.1234567]))
    for noise in classifier.noises():
        assert on_grid(noise, plan.grid, (1,)).point(point).values == point
    (answer,) = classifier.certify_each([(0, np.array([0.1234567]))])
    assert answer.region is None or answer.region.center == point
    assert answer.shift == pytest.approx(abs(0.1234567 - point[0]))


def test_an_input_that_certifies_nothing_costs_no_more_votes():
    line, _ = LINES["home limits"]
    (answer,) = line.classifier(alpha=0.001).certify_each([(0, np.array([0.4]))])
    assert (answer.predicted, answer.levels.chooser, answer.levels.n) == (ABSTAIN, None, 20 + 20 + 120)
