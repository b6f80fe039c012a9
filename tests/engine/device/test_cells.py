"""Cells on the device are those of the sampler, for the same 58 bits; what is drawn has their probabilities."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert.engine.philox import DeviceCells, stream_key, uniform_bits
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid, on_grid
from smoothcert.perturb.sampler import BITS, MOST_TABLES, CellSampler, normal_thresholds
from smoothcert.perturb.uniform import DiagonalUniform, Uniform
from smoothcert.tally import Phase, Stream

D = 6
SCALES = np.array([0.05, 0.25, 0.25, 0.5, 1.0, 2.0])
NOISES: dict[str, Noise] = {
    "gaussian": Gaussian(0.5),
    "uniform": Uniform(0.5),
    "diagonal-gaussian": DiagonalGaussian(SCALES),
    "diagonal-uniform": DiagonalUniform(SCALES),
}


class GivenBits:
    """A bit generator of the sampler's in which every number has the same 58 bits."""

    def __init__(self, bits: int, prefix: int) -> None:
        self._words = [(bits >> (BITS - 16)) * 0x0001_0001_0001_0001, (bits << (6 + prefix)) & (2**64 - 1)]

    def random_raw(self, count: int) -> np.ndarray:
        return np.full(count, self._words.pop(0), dtype=np.uint64)


def by_the_sampler(sampler: CellSampler, bits: int, dimension: int) -> list[int]:
    out = np.empty((1, dimension))
    sampler.draw(out, GivenBits(bits, 16 if sampler.which is None else 13))  # type: ignore[arg-type]
    return out[0].astype(int).tolist()


def neighbours(sampler: CellSampler, count: int) -> list[int]:
    """Every kind of threshold of every table and the numbers beside it, the ends, and some that are anywhere."""
    own = sampler.thresholds & np.uint64(2**BITS - 1)
    rng = np.random.default_rng(0)
    edges = {int(own[0]), int(own[-1]), *map(int, rng.choice(own, count))}
    near = {edge + offset for edge in edges for offset in (-1, 0, 1)}
    anywhere = {0, 1, 2**BITS - 1, 2**57, *rng.integers(0, 2**BITS, count).tolist()}
    return sorted(one for one in near | anywhere if 0 <= one < 2**BITS)


def check_same_cells(sampler: CellSampler, dimension: int, count: int) -> None:
    cells = DeviceCells(sampler, "cpu")
    tried = neighbours(sampler, count)
    half = (dimension + 1) // 2
    bits = torch.tensor(tried)[:, None].expand(-1, dimension)
    parts = [cells.steps(bits[:, :half], slice(0, half)), cells.steps(bits[:, half:], slice(half, dimension))]
    found = torch.cat(parts, 1).tolist()
    for number, steps in zip(tried, found):
        assert steps == by_the_sampler(sampler, number, dimension), number


@pytest.mark.parametrize("levels", [255, None])
@pytest.mark.parametrize("noise", NOISES)
def test_cells_are_the_samplers(noise, levels):
    check_same_cells(on_grid(NOISES[noise], Grid.of(levels), (D,)).sampler, D, 30)


def test_cells_of_as_many_tables_as_there_can_be():
    """The last table's bits make a number negative: it is still the last."""
    tables = [normal_thresholds(Fraction(64 + number)) for number in range(MOST_TABLES)]
    check_same_cells(CellSampler(tables, np.arange(MOST_TABLES)), MOST_TABLES, 10)


def drawn(noise: Noise, votes: int) -> np.ndarray:
    cells = DeviceCells(on_grid(noise, Grid.of(255), (D,)).sampler, "cpu")
    keys = torch.tensor([stream_key(Stream(1, 2, Phase.ESTIMATION))]).expand(votes, 4)
    lower, upper = uniform_bits(keys, torch.arange(votes), D)
    return torch.cat([cells.steps(lower, slice(0, 3)), cells.steps(upper, slice(3, D))], 1).numpy()


def check_distribution(name: str, votes: int) -> None:
    """χ² of each coordinate against the true noise's cells, of all coordinates, and of neighbours together."""
    noise = NOISES[name]
    grid = on_grid(noise, Grid.of(255), (D,))
    found = drawn(noise, votes)
    ratios = np.broadcast_to(noise.scales() * grid.steps_per_unit, (D,))
    truth = stats.norm if "gaussian" in name else stats.uniform(-(3**0.5), 2 * 3**0.5)
    places = []
    for coordinate, rho in enumerate(ratios):
        # About thirty sets of cells, of about equal probability: their ends are ends of cells.
        ends = np.unique(np.rint(truth.ppf(np.arange(1, 32) / 32) * rho)) + 0.5
        probabilities = np.diff(np.concatenate([[0.0], truth.cdf(ends / rho), [1.0]]))
        place = ends.searchsorted(found[:, coordinate])
        counts = np.bincount(place, minlength=len(probabilities))
        assert stats.chisquare(counts, probabilities * votes).pvalue > 1e-6, coordinate
        places.append(found[:, coordinate] > 0)
        # Low bits: a reader of last places sees what the true noise would show.
        whole = np.arange(-10 * int(rho) - 2, 10 * int(rho) + 3)
        each = truth.cdf((whole + 0.5) / rho) - truth.cdf((whole - 0.5) / rho)
        expected = np.bincount(whole % 4, each, 4) * votes
        assert stats.chisquare(np.bincount(found[:, coordinate] % 4, minlength=4), expected).pvalue > 1e-6
    for a in range(D):
        for b in range(a):
            table = np.histogram2d(places[a], places[b], 2)[0]
            assert stats.chi2_contingency(table).pvalue > 1e-6, (a, b)
    following = np.histogram2d(places[0][1:], places[0][:-1], 2)[0]
    assert stats.chi2_contingency(following).pvalue > 1e-6


@pytest.mark.parametrize("noise", NOISES)
def test_what_is_drawn_has_the_true_probabilities(noise):
    check_distribution(noise, 40_000)


@pytest.mark.campaign
@pytest.mark.parametrize("noise", NOISES)
def test_ten_million_numbers_have_the_true_probabilities(noise):
    check_distribution(noise, 2_000_000)
