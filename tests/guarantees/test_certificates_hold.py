"""“With probability 1−α the answer is the same everywhere in the region”, end to end, against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from smoothcert import SmoothedClassifier
from smoothcert.bounds import clopper_pearson_lower
from tests.guarantees.closed_forms import Bands, HalfSpace, Probit
from tests.guarantees.coverage import assert_rate_not_below, assert_rate_within

TRIALS = 3000
DIMENSIONS = 3


def false_certificates(
    model: Callable[[np.ndarray], np.ndarray], true_radius: float, trials: int, **options: Any
) -> tuple[int, int]:
    """(certificates that claim too much, certificates given) among independent certifications of the origin."""
    classifier = SmoothedClassifier(model, input_shape=(DIMENSIONS,), **options)
    answers = classifier.certify_each((i, np.zeros(DIMENSIONS)) for i in range(trials))
    given = [answer for answer in answers if not answer.abstained]
    return sum(answer.predicted != 0 or answer.radius > true_radius for answer in given), len(given)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two"])
@pytest.mark.parametrize("p_a", [0.6, 0.9])
def test_half_space_under_gaussian_noise(bound: str, p_a: float) -> None:
    edge = 0.5 * norm.ppf(p_a)
    false, given = false_certificates(
        HalfSpace(edge),
        edge,
        TRIALS,
        sigma=0.5,
        outputs="labels",
        classes=2,
        bound=bound,
        n0=20,
        n=60,
        alpha=0.1,
    )
    assert given
    assert_rate_within(false, TRIALS, 0.1)


def test_a_tie_is_certified_no_more_often_than_alpha() -> None:
    # At a tie every certificate is false. Votes that chose the class could not certify it at this rate: whichever
    # class they favour, they would favour it twice, and double the rate.
    false, given = false_certificates(
        HalfSpace(1e-9),
        1e-9,
        TRIALS,
        sigma=0.5,
        outputs="labels",
        classes=2,
        bound="clopper-pearson",
        n0=60,
        n=60,
        alpha=0.1,
    )
    assert false == given
    assert_rate_within(false, TRIALS, 0.1)
    assert_rate_not_below(false, TRIALS, 0.05)


def test_the_papers_bound_is_not_wasteful() -> None:
    # p just below a value the bound can take: exactly α of all certificates should claim too much.
    n, alpha = 60, 0.1
    p_a = clopper_pearson_lower(54, n, alpha) * (1 - 1e-6)
    edge = 0.5 * norm.ppf(p_a)
    false, _ = false_certificates(
        HalfSpace(edge),
        edge,
        TRIALS,
        sigma=0.5,
        outputs="labels",
        classes=2,
        bound="clopper-pearson",
        n0=50,
        n=n,
        alpha=alpha,
    )
    assert_rate_within(false, TRIALS, alpha)
    assert_rate_not_below(false, TRIALS, alpha * 0.95)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two"])
@pytest.mark.parametrize(("p_a", "p_b"), [(0.45, 0.1), (0.6, 0.3), (0.8, 0.19)])
def test_many_classes_under_gaussian_noise(bound: str, p_a: float, p_b: float) -> None:
    model = Bands.with_probabilities(p_a, p_b, 0.5, middle=20)
    false, given = false_certificates(
        model,
        model.true_radius,
        TRIALS,
        sigma=0.5,
        outputs="labels",
        classes=model.classes,
        bound=bound,
        n0=30,
        n=100,
        alpha=0.15,
    )
    assert_rate_within(false, TRIALS, 0.15)
    if bound == "top-two":
        assert given > TRIALS * 0.3


def test_top_two_certificates_are_not_wasteful() -> None:
    model = Bands.with_probabilities(0.5, 0.3, 0.5, middle=20)
    false, _ = false_certificates(
        model, model.true_radius, TRIALS, sigma=0.5, outputs="labels", classes=22, n0=100, n=400, alpha=0.3
    )
    # Both bounds must err the same way for the radius to overclaim: rarer than α, but not by orders.
    assert_rate_not_below(false, TRIALS, 0.02)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two"])
def test_uniform_noise_certifies_the_l1_ball(bound: str) -> None:
    # Half-spaces are the worst case here too: p_A falls by δ/2λ along an axis, true radius λ(2p_A − 1).
    sigma, p_a = 0.5, 0.8
    half_width = np.sqrt(3) * sigma
    edge = half_width * (2 * p_a - 1)
    false, given = false_certificates(
        HalfSpace(edge),
        edge,
        TRIALS,
        sigma=sigma,
        noise="uniform",
        outputs="labels",
        classes=2,
        bound=bound,
        n0=20,
        n=60,
        alpha=0.1,
    )
    assert given > TRIALS * 0.9
    assert_rate_within(false, TRIALS, 0.1)


def test_uniform_noise_with_three_classes() -> None:
    half_width = np.sqrt(3) * 0.5
    p_a, p_b = 0.5, 0.2
    model = Bands(half_width * (2 * p_a - 1), half_width * (1 - 2 * p_b), middle=10)
    assert model.true_radius == pytest.approx(half_width * (p_a - p_b))
    false, given = false_certificates(
        model,
        model.true_radius,
        TRIALS,
        sigma=0.5,
        noise="uniform",
        outputs="labels",
        classes=12,
        n0=30,
        n=100,
        alpha=0.15,
    )
    assert given > TRIALS * 0.5
    assert_rate_within(false, TRIALS, 0.15)


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
@pytest.mark.parametrize("softness", [0.05, 0.5])
def test_soft_votes_under_gaussian_noise(bound: str, softness: float) -> None:
    model = Probit(0.5, softness)
    false, given = false_certificates(
        model,
        model.true_radius,
        TRIALS,
        sigma=0.4,
        outputs="probabilities",
        bound=bound,
        n0=20,
        n=200,
        alpha=0.3,
    )
    assert given > TRIALS * 0.9
    assert_rate_within(false, TRIALS, 0.3)


def test_soft_votes_under_uniform_noise() -> None:
    # z_0 a step makes soft votes hard ones: the same worst case, the same true radius.
    half_width = np.sqrt(3) * 0.5
    edge = half_width * 0.7

    def step(batch: np.ndarray) -> np.ndarray:
        first = (batch[:, 0] < edge).astype(np.float64)
        return np.stack([first, 1 - first], axis=1)

    false, given = false_certificates(
        step,
        edge,
        TRIALS,
        sigma=0.5,
        noise="uniform",
        outputs="probabilities",
        bound="hoeffding",
        n0=20,
        n=100,
        alpha=0.3,
    )
    assert given > TRIALS * 0.9
    assert_rate_within(false, TRIALS, 0.3)


def test_predictions_are_wrong_at_most_alpha_of_the_time() -> None:
    model = HalfSpace(0.5 * norm.ppf(0.51))
    classifier = SmoothedClassifier(
        model, sigma=0.5, seed=0, outputs="labels", classes=2, input_shape=(DIMENSIONS,)
    )
    answers = classifier.predict_each(((i, np.zeros(DIMENSIONS)) for i in range(TRIALS)), n=60, alpha=0.1)
    assert_rate_within(sum(answer.predicted == 1 for answer in answers), TRIALS, 0.1)
