"""PREDICT answers about the classifier that CERTIFY certifies, and is wrong no more often than α."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from smoothcert import SmoothedClassifier
from smoothcert.bounds.anytime import anytime_mean_p_value, anytime_top_two_p_value
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.exact import likely_counts, soft_tally


def split_opinion(batch: np.ndarray) -> np.ndarray:
    """Most votes are for class 1 by a hair, and those for class 0 are certain: hard and soft answers differ."""
    certain = batch[:, :1] > 0.2
    return np.where(certain, [[0.99, 0.01]], [[0.45, 0.55]])


def test_predict_and_certify_speak_of_one_classifier():
    x = np.zeros(3)
    for bound in ("hoeffding", "bernstein"):
        soft = SmoothedClassifier(
            split_opinion, sigma=0.5, n=20_000, bound=bound, outputs="probabilities", seed=0
        )
        certified, predicted = soft.certify(x), soft.predict(x, n=20_000)
        assert certified.predicted == predicted.predicted == 0
    hard = SmoothedClassifier(split_opinion, sigma=0.5, n=20_000, outputs="probabilities", seed=0)
    assert hard.certify(x).predicted == hard.predict(x, n=20_000).predicted == 1


PREDICTION = Stream(0, 0, Phase.PREDICTION)


def answer(tally: Tally, alpha: float, error: float = 0.0) -> int:
    procedure = predict_procedure(tally.n, alpha, error)
    next(procedure)
    with pytest.raises(StopIteration) as stopped:
        procedure.send(tally)
    return int(stopped.value.value.predicted)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_soft_answers_are_wrong_with_probability_alpha_at_most(classes):
    """Every class has the same mean, so any answer but the first is wrong; votes are 0 or 1, the widest there are.

    Exactly, by the counts of the leading class and its strongest rival; a tie is never answered.
    """
    alpha, n, wrong = 0.2, 60, 0.0
    for chance, counts in likely_counts(n, [1 / classes] * classes):
        if counts[0] > max(counts[1:]):
            led_by_another = [counts[1], counts[0], *counts[2:]]
            rows = np.repeat(np.eye(classes), led_by_another, axis=0)
            wrong += (classes - 1) * chance * (answer(soft_tally(rows, PREDICTION), alpha) == 1)
    assert wrong + 1e-6 <= alpha


def test_clear_soft_votes_are_answered():
    rng = np.random.default_rng(0)
    first = rng.uniform(0.5, 0.9, 2000)
    rows = np.stack([1 - first, first], axis=1)
    assert answer(soft_tally(rows, PREDICTION), 0.001) == 1
    assert answer(soft_tally(rows[:20], PREDICTION), 0.001) == -1


def test_the_samplers_error_is_paid():
    tally = Tally(PREDICTION, 0, 20, (20, 0))
    p = 2.0**-19
    assert stats.binomtest(20, 20).pvalue == pytest.approx(p)
    assert answer(tally, p * 1.01) == 0
    assert answer(tally, p * 1.01, error=p / 20) == -1
    assert answer(tally, p * 2.02, error=p / 20) == 0


def wrong_at_any_look(p_value: Callable[[int, int], float], alpha: float, most: int) -> float:
    """Exactly, for two classes that are equally likely: the probability that the first is ever named."""
    reached = np.zeros(most + 2)
    reached[0] = 1.0
    ended = 0.0
    for n in range(1, most + 1):
        reached[1:] = 0.5 * reached[1:] + 0.5 * reached[:-1]
        reached[0] *= 0.5
        for k in range(n + 1):
            if 2 * k > n and p_value(k, n - k) <= alpha:
                ended += reached[k]
                reached[k] = 0.0
    return ended


def test_a_prediction_that_goes_on_until_it_is_decided_is_wrong_as_seldom_as_it_says():
    assert wrong_at_any_look(lambda a, b: anytime_top_two_p_value(a, b, 2), 0.05, 400) <= 0.05
    integral, _ = quad(lambda q: 2 * (2 * q) ** 60 * (2 * (1 - q)) ** 40, 0.5, 1)
    assert anytime_top_two_p_value(60, 40, 2) == pytest.approx(1 / integral, rel=1e-5)
    assert anytime_top_two_p_value(60, 40, 2) >= 1 / integral
    assert anytime_top_two_p_value(60, 40, 5) == pytest.approx(min(1, 4 / integral), rel=1e-5)
    assert anytime_top_two_p_value(40, 60, 2) == 1
    assert anytime_top_two_p_value(10**6, 0, 2) < 1e-200


def test_so_is_one_by_mean_probabilities():
    mixed, _ = quad(
        lambda t: 2 * math.exp(30 * t - 100 * t * t / 2 - t * t / 0.02) / math.sqrt(2 * math.pi * 0.01), 0, 3
    )
    assert anytime_mean_p_value(30.0, 100, 2) == pytest.approx(1 / mixed, rel=1e-5)
    assert wrong_at_any_look(lambda a, b: anytime_mean_p_value(a - b, a + b, 2), 0.05, 400) <= 0.05


def test_votes_end_when_the_answer_is_there():
    def above(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 0] > 0.5).astype(np.int64)

    smoothed = SmoothedClassifier(above, sigma=0.5, n=200, seed=0, outputs="labels", classes=2)
    sure, close = smoothed.predict(np.array([[3.0, 0.0], [0.5, 0.0]]), until_decided=2000, index=0)
    assert (sure.predicted, sure.tally.n, close.tally.n) == (1, 64, 2000)
    assert smoothed.predict(np.array([0.7, 0.0]), until_decided=20000).predicted == 1
