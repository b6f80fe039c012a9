"""Every registered noise keeps the same promises, with one scale and with many."""

import dataclasses
import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert import CertifyPlan
from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES, diagonal_noise
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.perturb.sampler import BITS
from smoothcert.runs.statement import PlanStatement, save_sigmas

RATIOS = [Fraction(64), Fraction(255, 2), Fraction(0.12) * 510, Fraction(0.3) * 2**9]
PAIRS = [(0.6, 0.4), (0.9, 0.1), (0.99, 0.01), (0.4, 0.1), (0.7, 0.05), (0.999, 0.0005)]


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


def trained_with(name: str, count: int = 20_000, seed: int = 0) -> np.ndarray:
    """Noise of standard deviation 1 as training draws it."""
    out = torch.empty(count, dtype=torch.float64)
    NOISES[name].fill(out, torch.Generator().manual_seed(seed))
    return out.numpy()


def cells(name: str, ratio: Fraction) -> np.ndarray:
    """The probability of each cell of a grid, by the thresholds."""
    edges = np.concatenate([[0], NOISES[name].thresholds(ratio).astype(np.float64), [2.0**BITS]])
    return np.diff(edges) / 2.0**BITS


def worst(before: np.ndarray, after: np.ndarray, probability: float, largest: bool) -> float:
    """Neyman and Pearson: what a set of that probability can come to when the input moves, at worst."""
    ratio = np.divide(after, before, out=np.full(len(after), np.inf), where=before > 0)
    order = np.argsort(-ratio if largest else ratio)
    filled = np.clip(probability - np.concatenate([[0.0], np.cumsum(before[order])[:-1]]), 0, before[order])
    shares = np.divide(
        filled, before[order], out=np.full(len(after), float(largest)), where=before[order] > 0
    )
    return float((after[order] * shares).sum())


def radius_of(noise: Noise, lower: float, upper: float) -> float:
    return noise.certificate.radius(ClassBounds(lower, upper))


def test_every_noise_has_both_forms():
    assert DIAGONAL_NOISES.names() == [f"diagonal-{name}" for name in NOISES.names()]


@pytest.mark.parametrize("name", NOISES.names())
class TestEveryNoise:
    def test_says_what_it_is(self, name):
        noise, stretched = NOISES[name](0.5), diagonal_noise(name, np.array([0.5, 2.0]))
        assert (noise.name, noise.kind, noise.stretched) == (name, name, False)
        assert (stretched.name, stretched.kind, stretched.stretched) == (f"diagonal-{name}", name, True)
        assert noise.norm == stretched.norm
        assert noise.norm in ("l1", "l2")
        assert noise.words
        assert (noise.sigma, noise.smallest_sigma, stretched.smallest_sigma) == (0.5, 0.5, 0.5)

    @pytest.mark.parametrize("sigma", [0.0, -0.5, math.nan, math.inf])
    def test_sigma_must_be_positive(self, name, sigma):
        with pytest.raises(InvalidValueError, match=f"sigma.*{sigma}"):
            NOISES[name](sigma)

    def test_is_a_value(self, name):
        assert NOISES[name](1) == NOISES[name](1.0) != NOISES[name](1.5)
        assert hash(NOISES[name](1)) == hash(NOISES[name](1.0))
        with pytest.raises(dataclasses.FrozenInstanceError):
            NOISES[name](1.0).sigma = 2.0  # type: ignore[misc]

    @pytest.mark.parametrize("ratio", RATIOS)
    def test_thresholds_are_symmetric_of_standard_deviation_one_and_end_within_reach(self, name, ratio):
        found = NOISES[name].thresholds(ratio).astype(object)
        assert (np.diff(found) >= 0).all()
        assert (found + found[::-1] == 2**BITS).all()
        assert found[0] > 0
        assert found[-1] < 2**BITS
        half = len(found) // 2
        assert half <= NOISES[name].reach * ratio + 1
        # A cell's noise was anywhere in it: Sheppard's correction, with an error that vanishes with the cells.
        variance = float((cells(name, ratio) * (np.arange(-half, half + 1) / float(ratio)) ** 2).sum())
        assert variance - 1 / (12 * float(ratio) ** 2) == pytest.approx(1, abs=0.02 / float(ratio))

    def test_thresholds_are_those_of_the_noise_that_training_draws(self, name):
        ratio = Fraction(64)
        found = NOISES[name].thresholds(ratio).astype(np.float64) / 2.0**BITS
        edges = (np.arange(len(found)) - len(found) // 2 + 0.5) / float(ratio)
        below = np.searchsorted(np.sort(trained_with(name)), edges) / 20_000
        assert np.abs(below - found).max() < 2.7 / math.sqrt(20_000)  # Kolmogorov: one in a million

    def test_grid_noise_follows_it_in_every_dimension_independently(self, name):
        sigmas = np.array([[0.2, 1.5], [0.7, 3.0]])
        true, values = trained_with(name), spread(diagonal_noise(name, sigmas), (20_000, 2, 2))
        for place in np.ndindex(2, 2):
            assert stats.ks_2samp(values[:, *place], sigmas[place] * true).pvalue > 1e-4
            assert values[:, *place].std() == pytest.approx(sigmas[place], rel=0.05)
        correlations = np.corrcoef(values.reshape(-1, 4).T) - np.eye(4)
        assert np.abs(correlations).max() < 5 / math.sqrt(20_000)
        assert stats.ks_2samp(spread(NOISES[name](0.7)).ravel(), 0.7 * true).pvalue > 1e-4

    def test_pictures_show_the_noise_that_training_draws(self, name):
        first, same = (NOISES[name].sample(np.random.default_rng(5), (100, 200)) for _ in range(2))
        assert np.array_equal(first, same)
        assert stats.ks_2samp(first.ravel(), trained_with(name)).pvalue > 1e-4

    def test_training_noise_comes_from_its_generator_alone(self, name):
        before = torch.get_rng_state()
        assert np.array_equal(trained_with(name, 100, 1), trained_with(name, 100, 1))
        assert not np.array_equal(trained_with(name, 100, 1), trained_with(name, 100, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert abs(trained_with(name).mean()) < 5 / math.sqrt(20_000)
        assert trained_with(name).std() == pytest.approx(1, abs=0.05)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("shape", [(1, 3), (7, 3), (64, 2), (64, 3, 5, 5)])
    def test_a_constant_vector_draws_the_bits_of_one_scale(self, name, shape, dtype):
        for sigma in (0.25, 0.37, 1 / 3):
            vector = drawn(diagonal_noise(name, np.full(shape[1:], sigma)), shape, dtype)
            assert np.array_equal(vector, drawn(NOISES[name](sigma), shape, dtype))

    @pytest.mark.parametrize(("lower", "upper"), PAIRS)
    def test_the_theorem_holds_for_the_worst_classifier_on_a_line(self, name, lower, upper):
        """Exact for classifiers that tell cells of σ/512 apart: the least p_A and the greatest p_B at a distance."""
        ratio = Fraction(512)
        radius = radius_of(NOISES[name](1.0), lower, upper)
        assert radius > 0
        still = cells(name, ratio)
        for share in (0.1, 0.5, 0.9, 1.0):
            steps = math.floor(share * radius * float(ratio))
            before, after = np.pad(still, (0, steps)), np.pad(still, (steps, 0))
            a, b = worst(before, after, lower, False), worst(before, after, upper, True)
            assert a >= b - 1e-12, f"at {share} of the radius class A may have {a} and another class {b}"

    def test_the_theorem_says_no_more_than_a_half_line_allows(self, name):
        """The class of all x ≤ t is lost t away: no radius at p_A = F(t), p_B = 1 − p_A may be larger."""
        ratio = Fraction(255, 2)
        found = NOISES[name].thresholds(ratio)
        half = len(found) // 2
        for place in range(half, len(found), max(1, half // 25)):
            share = int(found[place]) / 2**BITS
            if share < 1 - 1e-9:
                edge = (place - half + 0.5) / float(ratio)
                assert radius_of(NOISES[name](1.0), share, 1 - share) <= edge * (1 + 1e-9) + 1e-12

    def test_radii_grow_with_the_bounds_and_scale_with_sigma(self, name):
        grid = np.linspace(0.02, 0.98, 25)
        noise = NOISES[name](0.5)
        for low, high in pairwise(grid):
            assert radius_of(noise, high, 0.01) >= radius_of(noise, low, 0.01)
            assert radius_of(noise, 0.99, low) >= radius_of(noise, 0.99, high)
        assert radius_of(noise, 0.5, 0.5) == radius_of(noise, 0.3, 0.5) == 0
        for lower, upper in PAIRS:
            expected = 4 * radius_of(noise, lower, upper)
            assert radius_of(NOISES[name](2.0), lower, upper) == pytest.approx(expected, rel=1e-12)

    def test_a_vector_of_scales_gives_the_region_and_the_least_scale_its_radius(self, name):
        sigmas = np.array([[0.3, 1.0], [2.0, 0.7]])
        for lower, upper in PAIRS:
            bounds = ClassBounds(lower, upper)
            region = diagonal_noise(name, sigmas).certificate.region(np.zeros((2, 2)), bounds)
            assert region is not None
            expected = [radius_of(NOISES[name](float(sigma)), lower, upper) for sigma in sigmas.ravel()]
            assert region.axes == pytest.approx(expected, rel=1e-12)
            assert (region.axes <= expected).all()
            assert region.norm == NOISES[name].norm
            assert region.inscribed_radius == radius_of(diagonal_noise(name, sigmas), lower, upper)

    def test_estimated_gaps_are_the_theorems_for_numbers_arrays_and_tensors(self, name):
        kind = NOISES[name]
        first, second = (np.array(values) for values in zip(*PAIRS))
        exact = [kind.gap(*pair) for pair in PAIRS]
        assert [float(kind.soft_gap(*pair)) for pair in PAIRS] == pytest.approx(exact, rel=1e-9)
        assert kind.soft_gap(first, second) == pytest.approx(exact, rel=1e-9)
        assert kind.soft_gap(first) == pytest.approx(kind.soft_gap(first, 1 - first), rel=1e-9)
        tensor = torch.tensor(first, requires_grad=True)
        gaps = kind.soft_gap(tensor, torch.tensor(second))
        assert gaps.tolist() == pytest.approx(exact, rel=1e-9)
        gaps.sum().backward()
        slopes = (kind.soft_gap(first + 1e-7, second) - kind.soft_gap(first - 1e-7, second)) / 2e-7
        assert tensor.grad is not None
        assert tensor.grad.numpy() == pytest.approx(slopes, rel=1e-4)
        with np.errstate(all="ignore"):
            assert bool(np.isinf(kind.soft_gap(1.0))) == kind.steep

    def test_the_samplers_error_counts_its_cells(self, name):
        grid = Grid.of(255)
        for sigma in (0.12, 0.5, 3.0):
            noise = on_grid(NOISES[name](sigma), grid, (3, 4))
            error = NOISES[name](sigma).error(grid, 12)
            assert 12 * (2 * noise.sampler.reach + 1) * 2.0**-BITS <= error < 1e-10

    def test_plans_state_it_and_it_is_read_back(self, name, tmp_path):
        for noise in (NOISES[name](0.3), diagonal_noise(name, np.array([[0.1, 1 / 3]]))):
            stated = json.loads(json.dumps(CertifyPlan(noise).as_json()))
            assert stated["norm"] == noise.norm
            save_sigmas(tmp_path, noise)
            assert PlanStatement(stated).noise_in(tmp_path) == noise

    def test_many_scales_are_rounded_down_a_little_and_few_are_left_alone(self, name):
        grid = Grid.of(255)
        few = diagonal_noise(name, np.linspace(0.1, 1.0, 40))
        assert few.drawable(grid) is few
        sigmas = np.geomspace(0.02, 3.0, 784).reshape(28, 28)
        rounded = diagonal_noise(name, sigmas).drawable(grid)
        ratio = rounded.scales() / sigmas
        assert ratio.max() <= 1 + 1e-15
        assert ratio.min() > 0.94
        assert rounded.drawable(grid) == rounded
        assert CertifyPlan(diagonal_noise(name, sigmas), levels=255).noise == rounded

    def test_a_diagonal_noise_is_a_value(self, name):
        given = np.array([[0.2, 0.4], [0.1, 0.8]])
        noise = diagonal_noise(name, given)
        assert noise.sigma == pytest.approx(float(stats.gmean(given.ravel())), rel=1e-15)
        assert (noise.smallest_sigma, noise.largest_sigma) == (0.1, 0.8)
        assert noise == diagonal_noise(name, given)
        assert hash(noise) == hash(diagonal_noise(name, given))
        assert noise != diagonal_noise(name, given.ravel())
        assert noise != diagonal_noise(name, given * (1 + 1e-15))
        given[0, 0] = 5.0
        assert noise.sigmas[0, 0] == 0.2
        with pytest.raises(ValueError, match="read-only"):
            noise.sigmas[0, 0] = 5.0
        assert diagonal_noise(name, np.full(150_528, 0.1)).sigma == 0.1

    @pytest.mark.parametrize("bad", [0.0, -0.5, math.nan, math.inf])
    def test_every_sigma_must_be_positive(self, name, bad):
        with pytest.raises(InvalidValueError, match=rf"sigmas.*{bad}.*\(1,\).*\b1\b.*\b3\b"):
            diagonal_noise(name, np.array([1.0, bad, 1.0]))
        with pytest.raises(InvalidValueError, match="sigmas"):
            diagonal_noise(name, np.empty(0))
