"""Noise has the distribution it describes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.noise import (
    DIAGONAL_NOISES,
    NOISES,
    SIGMAS_FILE,
    DiagonalGaussian,
    DiagonalNoise,
    DiagonalUniform,
    Gaussian,
    Grid,
    Noise,
    Uniform,
    drawable,
    on_grid,
    save_sigmas,
)
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_search import SEARCHES

PAIRS = [(DiagonalGaussian, Gaussian), (DiagonalUniform, Uniform)]


def drawn(noise: Noise, shape: tuple[int, ...] = (20_000, 1), dtype: type = np.float32) -> np.ndarray:
    """Noise on the grid, in units of the input."""
    grid = on_grid(noise, Grid.of(255), shape[1:])
    out = np.empty(shape, dtype)
    grid.sampler.draw(out, np.random.SFC64(3))
    return out / grid.steps_per_unit


def spread(noise: Noise, shape: tuple[int, ...] = (20_000, 1)) -> np.ndarray:
    """The same, anywhere within its cell: what it was before it was rounded, nearly."""
    steps = on_grid(noise, Grid.of(255), shape[1:]).steps_per_unit
    return drawn(noise, shape) + np.random.default_rng(0).uniform(-0.5, 0.5, shape) / steps


def test_gaussian_follows_the_normal_law() -> None:
    assert stats.kstest(spread(Gaussian(0.7)).ravel(), stats.norm(scale=0.7).cdf).pvalue > 1e-4


def test_uniform_follows_the_uniform_law_with_standard_deviation_sigma() -> None:
    width = 0.7 * math.sqrt(3)
    values = spread(Uniform(0.7)).ravel()
    assert stats.kstest(values, stats.uniform(-width, 2 * width).cdf).pvalue > 1e-4
    assert values.std() == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize("name", NOISES.names())
@pytest.mark.parametrize("sigma", [0.0, -0.5, math.nan, math.inf])
def test_sigma_must_be_positive(name: str, sigma: float) -> None:
    with pytest.raises(InvalidValueError, match="sigma must be positive and finite"):
        NOISES[name](sigma)  # type: ignore[call-arg]


def test_each_dimension_follows_its_own_law_independently() -> None:
    sigmas = np.array([[0.2, 1.5], [0.7, 3.0]])
    normal, uniform = (spread(kind(sigmas), (20_000, 2, 2)) for kind in (DiagonalGaussian, DiagonalUniform))
    for place in np.ndindex(2, 2):
        scale = sigmas[place]
        width = math.sqrt(3) * scale
        assert stats.kstest(normal[:, *place], stats.norm(scale=scale).cdf).pvalue > 1e-4
        assert stats.kstest(uniform[:, *place], stats.uniform(-width, 2 * width).cdf).pvalue > 1e-4
    for values in (normal, uniform):
        correlations = np.corrcoef(values.reshape(-1, 4).T) - np.eye(4)
        assert np.abs(correlations).max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 3), (7, 3), (64, 2), (64, 3, 5, 5)])
@pytest.mark.parametrize(("diagonal", "isotropic"), PAIRS)
def test_a_constant_vector_draws_the_bits_of_the_isotropic_noise(
    diagonal: type[DiagonalNoise], isotropic: type[Noise], shape: tuple[int, ...], dtype: type
) -> None:
    for sigma in (0.25, 0.37, 1 / 3):
        vector = drawn(diagonal(np.full(shape[1:], sigma)), shape, dtype)
        assert np.array_equal(vector, drawn(isotropic(sigma), shape, dtype))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", DIAGONAL_NOISES.names())
def test_a_diagonal_noise_is_a_value(name: str) -> None:
    given = np.array([[0.2, 0.4], [0.1, 0.8]])
    noise = DIAGONAL_NOISES[name](given)
    assert noise.name == name
    assert noise.sigma == pytest.approx(float(stats.gmean(given.ravel())), rel=1e-15)
    assert (noise.least, noise.greatest) == (0.1, 0.8)
    assert noise == DIAGONAL_NOISES[name](given)
    assert hash(noise) == hash(DIAGONAL_NOISES[name](given))
    assert noise != DIAGONAL_NOISES[name](given.ravel())
    assert noise != DIAGONAL_NOISES[name](given * (1 + 1e-15))
    given[0, 0] = 5.0
    assert noise.sigmas[0, 0] == 0.2
    with pytest.raises(ValueError, match="read-only"):
        noise.sigmas[0, 0] = 5.0
    assert DIAGONAL_NOISES[name](np.full(150_528, 0.1)).sigma == 0.1


@pytest.mark.parametrize("name", DIAGONAL_NOISES.names())
@pytest.mark.parametrize("bad", [0.0, -0.5, math.nan, math.inf])
def test_every_sigma_must_be_positive(name: str, bad: float) -> None:
    with pytest.raises(InvalidValueError, match=r"positive and finite, got .* at position \(1,\) \(1 of 3"):
        DIAGONAL_NOISES[name](np.array([1.0, bad, 1.0]))
    with pytest.raises(InvalidValueError, match="got none"):
        DIAGONAL_NOISES[name](np.empty(0))


def test_many_scales_are_rounded_down_a_little_and_few_are_left_alone() -> None:
    grid = Grid.of(255)
    few = DiagonalGaussian(np.linspace(0.1, 1.0, 40))
    assert drawable(few, grid) is few
    sigmas = np.geomspace(0.02, 3.0, 784).reshape(28, 28)
    for kind in (DiagonalGaussian, DiagonalUniform):
        rounded = drawable(kind(sigmas), grid)
        assert isinstance(rounded, kind)
        ratio = rounded.sigmas / sigmas
        assert ratio.max() <= 1 + 1e-15
        assert ratio.min() > 0.94
        assert drawable(rounded, grid) == rounded
        assert on_grid(rounded, grid, (28, 28)).sampler.reach > 0
    assert CertifyPlan(DiagonalGaussian(sigmas), levels=255).noise == drawable(DiagonalGaussian(sigmas), grid)


def test_plans_state_the_vector_and_isotropic_plans_what_they_always_did() -> None:
    plain = json.loads(json.dumps(CertifyPlan(Gaussian(0.5)).as_json()))
    assert list(plain)[:3] == ["noise", "sigma", "norm"]
    assert not {"sigmas_sha256", "least_sigma"} & set(plain)
    first, second = (
        CertifyPlan(DiagonalGaussian(np.array([[0.5, last]]))).as_json()
        for last in (2.0, np.nextafter(2.0, 3))
    )
    assert json.loads(json.dumps(first)) == first
    assert {k: first[k] for k in ("noise", "sigma", "norm", "least_sigma", "dimension")} == {
        "noise": "diagonal-gaussian",
        "sigma": 1.0,
        "norm": "l2",
        "least_sigma": 0.5,
        "dimension": 2,
    }
    assert first["sigmas_sha256"] != second["sigmas_sha256"]
    reshaped = CertifyPlan(DiagonalGaussian(np.array([0.5, 2.0]))).as_json()
    assert reshaped["sigmas_sha256"] != first["sigmas_sha256"]
    assert CertifyPlan(DiagonalUniform(np.ones(3))).as_json()["norm"] == "l1"


def test_another_shape_is_refused_before_any_vote() -> None:
    asked = []

    def model(batch: np.ndarray) -> np.ndarray:
        asked.append(len(batch))
        return np.zeros(len(batch), dtype=np.int64)

    plan = CertifyPlan(DiagonalGaussian(np.ones(3)), n=100)
    classifier = SmoothedClassifier(model, plan, outputs="labels", classes=2, input_shape=(4,))
    for ask in (classifier.certify, classifier.predict):
        with pytest.raises(InvalidValueError, match=r"sigmas of shape \(3,\), the inputs have shape \(4,\)"):
            ask(np.zeros(4))
    assert asked == []


def test_a_search_for_one_sigma_is_refused() -> None:
    search = SEARCHES["ladder"]()  # type: ignore[call-arg]
    with pytest.raises(InvalidValueError, match="one for each dimension"):
        CertifyPlan(DiagonalGaussian(np.ones(3)), search=search)


def test_the_vector_is_kept_beside_a_run_and_verified(tmp_path: Path) -> None:
    noise = DiagonalUniform(np.array([[0.1, 1 / 3]]))
    save_sigmas(tmp_path, Gaussian(1.0))
    assert list(tmp_path.iterdir()) == []
    save_sigmas(tmp_path, noise)
    save_sigmas(tmp_path, noise)
    plan = json.loads(json.dumps(CertifyPlan(noise).as_json()))
    assert PlanStatement(plan).noise_in(tmp_path) == noise
    assert PlanStatement(CertifyPlan(Gaussian(0.5)).as_json()).noise_in(tmp_path) == Gaussian(0.5)
    other = DiagonalUniform(np.array([[0.1, 0.4]]))
    with pytest.raises(RunError, match="isn't the vector"):
        save_sigmas(tmp_path, other)
    np.save(tmp_path / SIGMAS_FILE, other.sigmas)
    with pytest.raises(RunError, match="isn't the vector"):
        PlanStatement(plan).noise_in(tmp_path)
    (tmp_path / SIGMAS_FILE).write_bytes(b"no numbers")
    with pytest.raises(RunError, match=r"no \.npy file"):
        PlanStatement(plan).noise_in(tmp_path)
    (tmp_path / SIGMAS_FILE).unlink()
    with pytest.raises(RunError, match="is missing"):
        PlanStatement(plan).noise_in(tmp_path)
