"""PREDICT answers about the classifier that CERTIFY certifies, and is wrong no more often than α."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.errors import InvalidValueError
from smoothcert.smoothing import decide, predict_procedure
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally
from tests.guarantees.exact import likely_counts


def split_opinion(batch: np.ndarray) -> np.ndarray:
    """Most votes are for class 1 by a hair, and those for class 0 are certain: hard and soft answers differ."""
    certain = batch[:, :1] > 0.2
    return np.where(certain, [[0.99, 0.01]], [[0.45, 0.55]])


def test_predict_and_certify_speak_of_one_classifier() -> None:
    x = np.zeros(3)
    for bound in ("hoeffding", "bernstein"):
        soft = SmoothedClassifier(
            split_opinion, sigma=0.5, n=20_000, bound=bound, outputs="probabilities", seed=0
        )
        certified, predicted = soft.certify(x), soft.predict(x, n=20_000)
        assert certified.predicted == predicted.predicted == 0
    hard = SmoothedClassifier(split_opinion, sigma=0.5, n=20_000, outputs="probabilities", seed=0)
    assert hard.certify(x).predicted == hard.predict(x, n=20_000).predicted == 1


def answer(tally: Tally, alpha: float, error: float = 0.0) -> int:
    procedure = predict_procedure(tally.n, alpha, error)
    next(procedure)
    with pytest.raises(StopIteration) as stopped:
        procedure.send(tally)
    return int(stopped.value.value.predicted)


def soft_votes(rows: np.ndarray) -> Tally:
    counts = np.bincount(rows.argmax(1), minlength=rows.shape[1])
    sums = np.floor(rows * SOFT_UNIT).astype(np.int64).sum(0)
    squares = np.ceil(rows**2 * SOFT_UNIT).astype(np.int64).sum(0)
    values = (tuple(int(v) for v in part) for part in (counts, sums, squares))
    return Tally(Stream(0, 0, Phase.PREDICTION), 0, len(rows), *values)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_soft_answers_are_wrong_with_probability_alpha_at_most(classes: int) -> None:
    """Every class has the same mean, so any answer but the first is wrong; votes are 0 or 1, the widest there are.

    Exactly, by the counts of the leading class and its strongest rival; a tie is never answered.
    """
    alpha, n, wrong = 0.2, 60, 0.0
    for chance, counts in likely_counts(n, [1 / classes] * classes):
        if counts[0] > max(counts[1:]):
            led_by_another = [counts[1], counts[0], *counts[2:]]
            rows = np.repeat(np.eye(classes), led_by_another, axis=0)
            wrong += (classes - 1) * chance * (answer(soft_votes(rows), alpha) == 1)
    assert wrong + 1e-6 <= alpha


def test_clear_soft_votes_are_answered() -> None:
    rng = np.random.default_rng(0)
    first = rng.uniform(0.5, 0.9, 2000)
    rows = np.stack([1 - first, first], axis=1)
    assert answer(soft_votes(rows), 0.001) == 1
    assert answer(soft_votes(rows[:20]), 0.001) == -1


def test_the_samplers_error_is_paid() -> None:
    tally = Tally(Stream(0, 0, Phase.PREDICTION), 0, 20, (20, 0))
    p = 2.0**-19
    assert stats.binomtest(20, 20).pvalue == pytest.approx(p)
    assert answer(tally, p * 1.01) == 0
    assert answer(tally, p * 1.01, error=p / 20) == -1
    assert answer(tally, p * 2.02, error=p / 20) == 0


PLAN = CertifyPlan(Gaussian(1.0), n0=10, n=100, seed=3)


def votes(phase: Phase, counts: tuple[int, ...], index: int = 0, seed: int = 3, start: int = 0) -> Tally:
    return Tally(Stream(seed, index, phase), start, start + sum(counts), counts)


@pytest.mark.parametrize(
    ("selection", "estimation", "values"),
    [
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (53, 0)), "100.*53"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (101, 0)), "100.*101"),
        (votes(Phase.SELECTION, (9, 0)), votes(Phase.ESTIMATION, (100, 0)), "10.*9"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), seed=4), "4"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), start=5), "5 to 105"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (100, 0), index=1), "0.*1"),
        (votes(Phase.SELECTION, (10, 0, 0)), votes(Phase.ESTIMATION, (100, 0)), "3"),
        (votes(Phase.SELECTION, (10, 0)), votes(Phase.ESTIMATION, (0, 0)), "0"),
    ],
)
def test_votes_that_were_not_asked_for_are_refused(selection: Tally, estimation: Tally, values: str) -> None:
    with pytest.raises(InvalidValueError, match=values):
        decide(np.zeros(2), PLAN, selection, estimation)


def test_a_seed_that_nobody_gave_is_drawn_and_stated() -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > 0).astype(np.int64)

    classifiers = [SmoothedClassifier(model, sigma=1.0, n=100, outputs="labels", classes=2) for _ in range(4)]
    seeds = {c.certify(np.ones(2)).seed for c in classifiers}
    assert len(seeds) == 4
    assert 0 not in seeds
    for c in classifiers:
        assert c.plan.seed in seeds
        assert c.predict(np.ones(2), n=50).tally.stream.seed == c.plan.seed
