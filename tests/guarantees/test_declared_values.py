"""Numbers, seeds and loaders as callers give them: their type and their way here change no promise."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import ConstantChooser, HoldingClassifier, LevelledClassifier, SmoothedClassifier
from smoothcert.analysis.intervals import population_lower_bound, rate_interval
from smoothcert.bounds import BOUNDS
from smoothcert.bounds.exact import clopper_pearson_lower, top_two_p_value
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import certify_dataset
from smoothcert.regions import L2Ball
from smoothcert.sampling import Execution, adapt
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.stopping.decisions import Decide
from smoothcert.tally import Phase, Stream, Tally


def scores(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch[:, 0], -batch[:, 0]], 1)


# Probabilities, radii and counts of NumPy's coarser types: scipy computes in float32 where it is given one


def tally(counts: tuple[Any, ...]) -> Tally:
    return Tally(Stream(0, 0, Phase.ESTIMATION), 0, int(sum(map(int, counts))), counts)


@pytest.mark.parametrize("bound", sorted(name for name in BOUNDS if BOUNDS[name].votes == "hard"))
def test_a_bound_of_a_float32_alpha_is_that_of_its_value(bound: str) -> None:
    for n, missing in ((1000, 1), (10_000, 3), (1_000_000, 7), (1_000_000, 18)):
        alpha = np.float32(0.001)
        votes = tally((n - missing, missing))
        assert BOUNDS[bound](votes, 0, alpha) == BOUNDS[bound](votes, 0, float(alpha))  # type: ignore[arg-type]


@pytest.mark.parametrize("coarse", [np.float16, np.float32])
def test_a_plan_keeps_its_numbers_as_float64(coarse: type[np.floating]) -> None:
    alpha, sigma = coarse(0.001), coarse(0.1)
    given = SmoothedClassifier(scores, sigma=sigma, alpha=alpha, bound="clopper-pearson", n=2000, seed=3)  # type: ignore[arg-type]
    plain = SmoothedClassifier(
        scores, sigma=float(sigma), alpha=float(alpha), bound="clopper-pearson", n=2000, seed=3
    )
    assert [type(value) for value in (given.plan.alpha, given.plan.noise.sigma)] == [float, float]
    x = np.array([0.2, 0.0])
    assert given.certify(x).radius == plain.certify(x).radius  # type: ignore[union-attr]


def test_predict_isnt_decided_by_a_rounded_p_value() -> None:
    """What the sampler's error adds to 2⁻⁹ is less than float32 can say."""
    classifier = SmoothedClassifier(scores, sigma=1.0, seed=0)
    alpha = classifier._settle_prediction(10, np.float32(2.0**-9))  # type: ignore[arg-type]
    procedure = predict_procedure(10, alpha, 1e-12)
    next(procedure)
    with pytest.raises(StopIteration) as done:
        procedure.send(Tally(Stream(0, 0, Phase.PREDICTION), 0, 10, (10, 0)))
    assert done.value.value.p_value > 2.0**-9
    assert done.value.value.abstained


@pytest.mark.parametrize("small", [np.int8, np.int16, np.float32])
def test_small_counts_mean_what_they_say(small: Any) -> None:
    assert clopper_pearson_lower(small(97), small(100), 0.001) == clopper_pearson_lower(97, 100, 0.001)
    assert top_two_p_value(small(70), small(20)) == top_two_p_value(70, 20)
    counts = (small(100), small(27))
    assert BOUNDS["mixture"](tally(counts), 0, 0.01) == BOUNDS["mixture"](tally((100, 27)), 0, 0.01)


def test_statements_and_regions_are_computed_in_float64_whatever_they_are_given() -> None:
    level: Any = np.float32(0.01)
    share: Any = np.float32(0.9)
    exact = float(level)
    assert population_lower_bound(99, 100, level, level) == population_lower_bound(99, 100, exact, exact)
    assert rate_interval(99, 100, share) == rate_interval(99, 100, float(share))
    ball = L2Ball(np.zeros(1), np.float32(0.1))  # type: ignore[arg-type]
    assert not ball.contains([np.nextafter(float(np.float32(0.1)), 1.0)])
    shrunk = L2Ball(np.zeros(1), 1.0).scaled(np.float32(0.1))  # type: ignore[arg-type]
    assert shrunk is not None
    assert shrunk.radius < float(np.float32(0.1))
    assert type(Decide(np.float32(0.1)).radius) is float  # type: ignore[arg-type]


# Seeds that nobody gave: one for a classifier and all its copies, or answers to one input could be chosen among


def copies_of(one: Any) -> list[Any]:
    made = [copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    if not isinstance(one, HoldingClassifier):
        made += [one.on(Execution(workers=2)), copy.copy(one).on(Execution(workers=1))]
    return made


def first_sign(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 0).astype(np.int64)


def unseeded(kind: str) -> Any:
    if kind == "levels":
        model = adapt(first_sign, "hard", "labels", 2)
        return LevelledClassifier(model, ConstantChooser(0), sigmas=(0.5,), n=200, n0=20)
    plain = SmoothedClassifier(first_sign, sigma=0.5, n=200, n0=20, outputs="labels", classes=2)
    return plain.holding([1]) if kind == "held" else plain


@pytest.mark.parametrize("kind", ["plain", "held", "levels"])
def test_copies_made_before_the_first_vote_have_one_seed(kind: str) -> None:
    one, x = unseeded(kind), np.array([0.25, 0.5])
    answers = [each.certify(x) for each in [*copies_of(one), one, *copies_of(one)]]
    assert len({answer.seed for answer in answers}) == 1
    assert len({answer.estimation.counts for answer in answers}) == 1
    assert unseeded(kind).certify(x).seed != answers[0].seed


def test_a_data_set_still_has_seed_0_whatever_was_drawn(tmp_path: Path) -> None:
    data = Dataset("two", np.array([[0.5, 0.0], [-0.5, 0.0]]), np.array([1, 0]), ("a", "b"))
    one = unseeded("plain")
    for number, each in enumerate([one, *copies_of(one)]):
        run = certify_dataset(each, data, tmp_path / str(number))
        assert run.manifest.plan.seed == 0
        assert each.plan.seed is None
