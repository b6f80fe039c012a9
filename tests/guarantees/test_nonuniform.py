"""Noise with a scale for each dimension: certified regions hold, against smoothed classifiers in closed form.

f(x) = 1[w·x + b > 0] under N(0, diag σ²) has p₁(x) = Φ((w·x + b)/‖σ⊙w‖), so g flips exactly at w·x + b = 0. From x
with margin m = w·x + b > 0, an ellipsoid with semi-axes aᵢ holds a point of the other side if and only if ‖a⊙w‖ > m.
The ellipsoid of the true p touches the edge: aᵢ = σᵢ·m/‖σ⊙w‖, so ‖a⊙w‖ = m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from smoothcert import Certification, CertifyPlan, SmoothedClassifier
from smoothcert.bounds import clopper_pearson_lower
from smoothcert.noise import DiagonalGaussian, DiagonalUniform, Gaussian, Noise, Uniform
from smoothcert.regions import CrossPolytope, Ellipsoid
from tests.guarantees.coverage import assert_rate_not_below, assert_rate_within

TRIALS = 2000
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


def certified(model: Any, noise: Noise, trials: int, seed: int = 0, **plan: Any) -> list[Certification]:
    stated = CertifyPlan(noise, seed=seed, **plan)
    options = (
        {"outputs": "labels", "classes": 2}
        if stated.confidence_bound.votes == "hard"
        else {"outputs": "probabilities"}
    )
    classifier = SmoothedClassifier(model, stated, input_shape=(3,), **options)
    answers = classifier.certify_each((i, np.zeros(3)) for i in range(trials))
    return [answer for answer in answers if not answer.abstained]


def false_regions(given: list[Certification], model: Linear) -> int:
    return sum(
        answer.predicted != 0 or model.crossed_by(answer.region.semi_axes, answer.region.order)
        for answer in given
    )


def linear_at(p: float, weights: np.ndarray = WEIGHTS, sigmas: np.ndarray = SIGMAS) -> Linear:
    return Linear(float(norm.ppf(p) * np.linalg.norm(sigmas * weights)), weights)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two"])
@pytest.mark.parametrize("p", [0.6, 0.9])
def test_ellipsoids_hold_as_often_as_promised(bound: str, p: float) -> None:
    model = linear_at(p)
    given = certified(model, DiagonalGaussian(SIGMAS), TRIALS, bound=bound, n0=20, n=60, alpha=0.1)
    assert given
    assert all(isinstance(answer.region, Ellipsoid) for answer in given)
    assert_rate_within(false_regions(given, model), TRIALS, 0.1)


def test_the_bound_is_used_up() -> None:
    """p just below a value the bound can take: α of all ellipsoids should reach over the edge."""
    n, alpha = 60, 0.1
    model = linear_at(clopper_pearson_lower(54, n, alpha) * (1 - 1e-6))
    given = certified(
        model, DiagonalGaussian(SIGMAS), TRIALS, bound="clopper-pearson", n0=50, n=n, alpha=alpha
    )
    assert_rate_within(false_regions(given, model), TRIALS, alpha)
    assert_rate_not_below(false_regions(given, model), TRIALS, alpha * 0.95)


def test_soft_votes_hold_too() -> None:
    """z₀ = Φ((w·x + m)/s) has mean Φ((w·x + m)/√(‖σ⊙w‖² + s²)): the edge is where it was."""
    softness = 0.3
    edge = linear_at(0.8)

    def model(batch: np.ndarray) -> np.ndarray:
        first = norm.cdf((batch.astype(np.float64) @ WEIGHTS + edge.margin) / softness)
        return np.stack([first, 1 - first], axis=1)

    for bound in ("hoeffding", "bernstein"):
        given = certified(model, DiagonalGaussian(SIGMAS), 500, bound=bound, n0=20, n=200, alpha=0.3)
        assert len(given) > 250
        assert_rate_within(false_regions(given, edge), 500, 0.3)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("the ball of the mean sigma", lambda a: np.full(3, SIGMAS.mean() / SIGMAS[0] * a[0])),
        ("the ball of equal volume", lambda a: np.full(3, np.exp(np.log(a).mean()))),
        ("the ball of the largest sigma", lambda a: np.full(3, a.max())),
        ("an axis too long", lambda a: a * np.array([1.5, 1, 1])),
    ],
    ids=["mean", "volume", "largest", "axis"],
)
def test_the_check_has_teeth(name: str, axes: Callable[[np.ndarray], np.ndarray]) -> None:
    """Other regions that one might claim of the same votes are false far more often than α: the check sees it."""
    model = linear_at(0.9, np.array([5.0, 0.1, 0.01]))
    given = certified(model, DiagonalGaussian(SIGMAS), 500, bound="clopper-pearson", n0=20, n=400, alpha=0.1)
    assert_rate_within(false_regions(given, model), 500, 0.1)
    wrong = sum(model.crossed_by(axes(answer.region.semi_axes), 2) for answer in given)
    with pytest.raises(AssertionError, match="more than alpha"):
        assert_rate_within(wrong, 500, 0.1)


def test_the_radius_is_that_of_a_ball_which_holds() -> None:
    """The plain ℓ2 certificate read off the same answer, in every direction and in the worst."""
    for weights in (np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), WEIGHTS):
        model = linear_at(0.9, weights)
        given = certified(model, DiagonalGaussian(SIGMAS), 500, bound="top-two", n0=20, n=60, alpha=0.1)
        false = sum(answer.radius * np.linalg.norm(weights) > model.margin for answer in given)
        assert_rate_within(false, 500, 0.1)
        assert all(answer.radius == answer.region.inscribed_radius for answer in given)


def test_ellipsoids_are_tight_in_the_limit_of_many_votes() -> None:
    """Theorem 3.1 is exact for linear classifiers: with n votes the gap approaches Φ⁻¹(p) from below."""
    shares = []
    for n in (100, 10_000, 1_000_000):
        model = linear_at(0.9)
        (answer,) = certified(model, DiagonalGaussian(SIGMAS), 1, n0=100, n=n, alpha=0.001)
        touching = np.linalg.norm(answer.region.semi_axes * WEIGHTS) / model.margin
        shares.append(float(touching))
    assert shares == sorted(shares)
    assert 0.99 < shares[-1] <= 1


def test_uniform_noise_certifies_a_cross_polytope() -> None:
    """One coordinate decides: p falls by δ/2λᵢ, so the edge is at exactly λᵢ(2p − 1)."""
    p = 0.8
    for i in range(3):
        weights = np.eye(3)[i]
        half_width = np.sqrt(3) * SIGMAS[i]
        model = Linear(half_width * (2 * p - 1), weights)
        given = certified(
            model, DiagonalUniform(SIGMAS), TRIALS, bound="clopper-pearson", n0=20, n=60, alpha=0.1
        )
        assert len(given) > TRIALS * 0.9
        assert all(isinstance(answer.region, CrossPolytope) for answer in given)
        assert_rate_within(false_regions(given, model), TRIALS, 0.1)
        # With the largest scale for all dimensions, or the geometric mean, it would not hold.
        if i == 0:
            for claimed in (SIGMAS.max(), np.exp(np.log(SIGMAS).mean())):
                wrong = sum(
                    model.crossed_by(np.full(3, answer.region.semi_axes[0] / SIGMAS[0] * claimed), 1)
                    for answer in given
                )
                with pytest.raises(AssertionError, match="more than alpha"):
                    assert_rate_within(wrong, TRIALS, 0.1)


def box_share(low: np.ndarray, x: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """P[x + U[−λ, λ] ≥ low in every coordinate]: a product, in closed form."""
    return np.clip((x + widths - low) / (2 * widths), 0, 1).prod(axis=-1)


def test_a_product_of_thresholds_under_uniform_noise_never_flips_inside() -> None:
    """Class 0 where every coordinate is above its threshold; its share is a product, known at every shift."""
    widths = np.sqrt(3) * SIGMAS
    low = -widths * np.array([0.8, 0.95, 0.9])
    p = float(box_share(low, np.zeros(3), widths))
    assert 0.7 < p < 0.95

    def model(batch: np.ndarray) -> np.ndarray:
        return (batch < low).any(axis=1).astype(np.int64)

    given = certified(model, DiagonalUniform(SIGMAS), 500, bound="top-two", n0=20, n=200, alpha=0.1)
    rng = np.random.default_rng(0)
    directions = rng.dirichlet(np.ones(3), size=200) * -1
    directions = np.concatenate([directions, -np.eye(3)])
    false = sum(
        bool((box_share(low, directions * answer.region.semi_axes, widths) < 0.5).any()) for answer in given
    )
    assert len(given) > 400
    assert_rate_within(false, 500, 0.1)


@pytest.mark.parametrize(
    ("diagonal", "isotropic"), [(DiagonalGaussian, Gaussian), (DiagonalUniform, Uniform)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_vector_is_the_isotropic_certificate(
    diagonal: type[DiagonalGaussian], isotropic: type[Gaussian], dtype: str
) -> None:
    from smoothcert.sampling import Numerics

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
