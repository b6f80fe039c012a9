"""Noise with a scale for each dimension: certified regions hold, against smoothed classifiers in closed form.

f(x) = 1[w·x + b > 0] under N(0, diag σ²) has p₁(x) = Φ((w·x + b)/‖σ⊙w‖), so g flips exactly at w·x + b = 0. From x
with margin m = w·x + b > 0, an ellipsoid with semi-axes aᵢ holds a point of the other side if and only if ‖a⊙w‖ > m.
The ellipsoid of the true p touches the edge: aᵢ = σᵢ·m/‖σ⊙w‖, so ‖a⊙w‖ = m.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm

from smoothcert import Certification, CertifyPlan, SmoothedClassifier
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.uniform import DiagonalUniform, Uniform
from smoothcert.regions.bodies import CrossPolytope, Ellipsoid
from smoothcert.smoothing.procedures import certify_procedure
from tests.guarantees.exact import Answers, exact_answers, probability

SIGMAS = np.array([0.1, 0.5, 2.0])
WEIGHTS = np.array([2.0, -1.0, 0.5])


@dataclass(frozen=True)
class Linear:
    """Class 0 where w·x + margin > 0: an input at 0 is that far from the edge, in units of w."""

    margin: float
    weights: np.ndarray

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return (batch.astype(np.float64) @ self.weights + self.margin <= 0).astype(np.int64)

    def crossed_by(self, semi_axes: np.ndarray, order: int) -> bool:
        """Whether a region around 0 with these semi-axes holds a point of class 1: its extent against w."""
        reach = np.abs(semi_axes * self.weights)
        return bool((np.linalg.norm(reach) if order == 2 else reach.max()) > self.margin)


def certified(model: Any, noise: Noise, inputs: int, **plan: Any) -> list[Certification]:
    """Certificates of the origin from the engine, those that abstain left out."""
    stated = CertifyPlan(noise, seed=0, **plan)
    classifier = SmoothedClassifier(model, stated, input_shape=(3,), outputs="labels", classes=2)
    answers = classifier.certify_each((i, np.zeros(3)) for i in range(inputs))
    return [answer for answer in answers if not answer.abstained]


def outcomes(noise: Noise, p: float, **plan: Any) -> tuple[Answers, float]:
    """Every answer about the origin, whose votes are for class 0 with probability p."""
    stated = CertifyPlan(noise, **plan)
    return exact_answers(lambda: certify_procedure(np.zeros(3), stated), p, selected=0)


def crossing(model: Linear) -> Callable[[Certification], bool]:
    """Whether an answer's region holds a point of the other class."""
    return lambda answer: (
        not answer.abstained and model.crossed_by(answer.region.semi_axes, answer.region.order)
    )


def share_given(answers: tuple[Answers, float]) -> float:
    return 1 - probability(answers, lambda answer: answer.abstained)


def linear_at(p: float, weights: np.ndarray = WEIGHTS, sigmas: np.ndarray = SIGMAS) -> Linear:
    return Linear(float(norm.ppf(p) * np.linalg.norm(sigmas * weights)), weights)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two"])
@pytest.mark.parametrize("p", [0.6, 0.9])
def test_ellipsoids_hold_as_often_as_promised(bound, p):
    answers = outcomes(DiagonalGaussian(SIGMAS), p, bound=bound, n=60, alpha=0.1)
    assert all(isinstance(answer.region, Ellipsoid) for _, answer in answers[0] if not answer.abstained)
    assert probability(answers, crossing(linear_at(p))) <= 0.1
    assert share_given(answers) > 0.3
    # Of the other class, had it been chosen, every certificate is false.
    plan = CertifyPlan(DiagonalGaussian(SIGMAS), bound=bound, n=60, alpha=0.1)
    other = exact_answers(lambda: certify_procedure(np.zeros(3), plan), p, selected=1)
    assert probability(other, lambda answer: not answer.abstained) <= 0.1


def test_the_bound_is_used_up():
    """p just below a value the bound can take: α of all ellipsoids reach over the edge."""
    n, alpha = 60, 0.1
    p = clopper_pearson_lower(54, n, alpha) * (1 - 1e-9)
    answers = outcomes(DiagonalGaussian(SIGMAS), p, bound="clopper-pearson", n=n, alpha=alpha)
    assert probability(answers, crossing(linear_at(p))) == pytest.approx(alpha, rel=1e-4)


def test_the_engines_votes_have_the_probability_of_the_closed_form():
    """What the sums above take for granted, where every coordinate weighs in."""
    p, n, inputs = 0.8, 200, 300
    given = certified(linear_at(p), DiagonalGaussian(SIGMAS), inputs, n0=20, n=n, alpha=0.001)
    counts = [answer.estimation.counts[0] for answer in given]
    assert len(given) == inputs
    assert stats.binomtest(sum(counts), n * inputs, p).pvalue > 1e-6
    assert stats.chi2.cdf(np.var(counts) * inputs / (n * p * (1 - p)), inputs - 1) < 1 - 1e-6


@pytest.mark.parametrize(
    "axes",
    [
        lambda a: np.full(3, SIGMAS.mean() / SIGMAS[0] * a[0]),
        lambda a: np.full(3, np.exp(np.log(a).mean())),
        lambda a: np.full(3, a.max()),
        lambda a: a * np.array([1.5, 1, 1]),
    ],
    ids=["ball of the mean", "ball of equal volume", "ball of the largest", "an axis too long"],
)
def test_the_check_has_teeth(axes):
    """Other regions that one might claim of the same votes are false more often than α: the check sees it."""
    model = linear_at(0.9, np.array([5.0, 0.1, 0.01]))
    answers = outcomes(DiagonalGaussian(SIGMAS), 0.9, bound="clopper-pearson", n=400, alpha=0.1)
    assert probability(answers, crossing(model)) <= 0.1
    claimed = probability(
        answers, lambda one: not one.abstained and model.crossed_by(axes(one.region.semi_axes), 2)
    )
    assert claimed > 0.2


def test_the_radius_is_that_of_a_ball_which_holds():
    """The plain ℓ2 certificate read off the same answer, in every direction and in the worst."""
    answers = outcomes(DiagonalGaussian(SIGMAS), 0.9, bound="top-two", n=60, alpha=0.1)
    given = [answer for _, answer in answers[0] if not answer.abstained]
    assert all(answer.radius == answer.region.inscribed_radius for answer in given)
    for weights in (np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), WEIGHTS):
        margin = linear_at(0.9, weights).margin
        length = np.linalg.norm(weights)
        assert probability(answers, lambda one, m=margin, k=length: one.radius * k > m) <= 0.1


def test_ellipsoids_are_tight_in_the_limit_of_many_votes():
    """Theorem 3.1 is exact for linear classifiers: with n votes the gap approaches Φ⁻¹(p) from below."""
    shares = []
    for n in (100, 5_000, 300_000):
        model = linear_at(0.9)
        (answer,) = certified(model, DiagonalGaussian(SIGMAS), 1, n0=100, n=n, alpha=0.001)
        touching = np.linalg.norm(answer.region.semi_axes * WEIGHTS) / model.margin
        shares.append(float(touching))
    assert shares == sorted(shares)
    assert 0.99 < shares[-1] <= 1


def test_uniform_noise_certifies_a_cross_polytope():
    """One coordinate decides: p falls by δ/2λᵢ, so the edge is at exactly λᵢ(2p − 1)."""
    p = 0.8
    answers = outcomes(DiagonalUniform(SIGMAS), p, bound="clopper-pearson", n=60, alpha=0.1)
    assert share_given(answers) > 0.9
    assert all(isinstance(answer.region, CrossPolytope) for _, answer in answers[0] if not answer.abstained)
    models = [Linear(float(np.sqrt(3) * SIGMAS[i] * (2 * p - 1)), np.eye(3)[i]) for i in range(3)]
    for model in models:
        assert probability(answers, crossing(model)) <= 0.1
    # With the largest scale for all dimensions, or the geometric mean, it would not hold.
    for claimed in (SIGMAS.max(), np.exp(np.log(SIGMAS).mean())):

        def wrong(one: Certification, scale: float = float(claimed / SIGMAS[0])) -> bool:
            return not one.abstained and models[0].crossed_by(np.full(3, one.region.semi_axes[0] * scale), 1)

        assert probability(answers, wrong) > 0.2


def box_share(low: np.ndarray, x: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """P[x + U[−λ, λ] ≥ low in every coordinate]: a product, in closed form."""
    return np.clip((x + widths - low) / (2 * widths), 0, 1).prod(axis=-1)


def test_a_product_of_thresholds_under_uniform_noise_never_flips_inside():
    """Class 0 where every coordinate is above its threshold; its share is a product, known at every shift."""
    widths = np.sqrt(3) * SIGMAS
    low = -widths * np.array([0.8, 0.95, 0.9])
    p = float(box_share(low, np.zeros(3), widths))
    assert 0.7 < p < 0.95

    answers = outcomes(DiagonalUniform(SIGMAS), p, bound="top-two", n=200, alpha=0.1)
    directions = np.random.default_rng(0).dirichlet(np.ones(3), size=200) * -1
    directions = np.concatenate([directions, -np.eye(3)])

    def flips(one: Certification) -> bool:
        return not one.abstained and bool(
            (box_share(low, directions * one.region.semi_axes, widths) < 0.5).any()
        )

    assert share_given(answers) > 0.8
    assert probability(answers, flips) <= 0.1


@pytest.mark.parametrize(
    ("diagonal", "isotropic"), [(DiagonalGaussian, Gaussian), (DiagonalUniform, Uniform)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_vector_is_the_isotropic_certificate(diagonal, isotropic, dtype):
    model = linear_at(0.8, sigmas=np.full(3, 0.3))
    options: dict[str, Any] = {"n0": 50, "n": 1000, "numerics": Numerics(dtype=dtype)}
    vector = certified(model, diagonal(np.full(3, 0.3)), 10, **options)
    plain = certified(model, isotropic(0.3), 10, **options)
    assert len(plain) == 10
    for ours, theirs in zip(sorted(vector, key=lambda a: a.index), sorted(plain, key=lambda a: a.index)):
        assert (ours.selection, ours.estimation) == (theirs.selection, theirs.estimation)
        assert (ours.radius, ours.sigma, ours.norm) == (theirs.radius, theirs.sigma, theirs.norm)
        assert (ours.region.semi_axes == theirs.region.radius).all()
        assert ours.region.certified_area == theirs.region.certified_area
        assert (ours.volume_radius, theirs.volume_radius) == (theirs.radius, None)
