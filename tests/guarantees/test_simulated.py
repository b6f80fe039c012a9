"""Votes from the sampler's bits; in the campaign, a hundred thousand certifications for every bound and noise.

The base classifiers are those whose smoothed version is known in closed form, on the grid: every edge lies half-way
between two steps, so that f∘Q under real noise has exactly the probabilities of f. Half of the inputs sit where any
certificate is false, the others where bounds are used up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom, chisquare

from smoothcert.bounds import BOUNDS
from smoothcert.noise import DiagonalGaussian, DiagonalUniform, Gaussian, Grid, Noise, Uniform, on_grid
from smoothcert.smoothing import CertifyPlan
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally
from tests.guarantees.coverage import assert_rate_within

CERTIFICATIONS, N, ALPHA = 100_000, 133, 0.05  # 133 is a look of the bounds that have looks
NOISES: dict[str, Noise] = {
    "gaussian": Gaussian(0.5),
    "uniform": Uniform(0.5),
    "diagonal-gaussian": DiagonalGaussian(np.array([0.5, 0.2])),
    "diagonal-uniform": DiagonalUniform(np.array([0.5, 0.2])),
}


def _votes(noise: Noise, edge_steps: int, seed: int, certifications: int) -> NDArray[np.int64]:
    """For each certification, how many of N noisy copies of 0 stay below the edge at (edge_steps + ½) steps."""
    grid = on_grid(noise, Grid.of(255), (2,))
    bits = np.random.SFC64(seed)
    counts = np.empty(certifications, np.int64)
    together = min(certifications, 10_000)
    for start in range(0, certifications, together):
        drawn = np.empty((together * N, 2), np.float32)
        grid.sampler.draw(drawn, bits)
        counts[start : start + together] = (drawn[:, 0] <= edge_steps).reshape(together, N).sum(1)
    return counts


def _radius(plan: CertifyPlan, votes: str) -> Callable[[int], float]:
    def of(count: int) -> float:
        counts = (count, N - count)
        soft = tuple(c * SOFT_UNIT for c in counts) if votes == "soft" else None
        tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, N, counts, soft, soft)
        return plan.certificate.radius(plan.bounds_of(tally, 0))

    return of


def _edge(noise: Noise, edge_steps: int) -> tuple[float, float]:
    """Where an edge lies, and the probability that the first coordinate of the noise stays below it."""
    grid = on_grid(noise, Grid.of(255), (2,))
    edge = (edge_steps + 0.5) / float(np.asarray(grid.steps_per_unit).flat[0])
    if "gaussian" in noise.name:
        return edge, float(ndtr(edge / 0.5))
    return edge, (1 + edge / (0.5 * 3**0.5)) / 2


@pytest.mark.parametrize("noise", NOISES)
def test_the_samplers_votes_are_binomial(noise: str) -> None:
    """Their whole distribution: the bounds are exact for binomial votes (test_bounds_hold, test_certificates_hold)."""
    inputs = 4000
    for edge_steps in (-1, 0, 40, 100):
        _, p = _edge(NOISES[noise], edge_steps)
        counts = _votes(NOISES[noise], edge_steps, edge_steps + 10, inputs)
        cuts = [0, *(int(binom.ppf(q, N, p)) + 1 for q in np.linspace(0.05, 0.95, 10)), N + 1]
        cuts = sorted(set(cuts))
        expected = np.diff(binom.cdf(np.array(cuts) - 1, N, p)) * inputs
        assert chisquare(np.histogram(counts, cuts)[0], expected).pvalue > 1e-6


@pytest.mark.campaign
@pytest.mark.parametrize("noise", NOISES)
def test_no_more_certificates_are_false_than_alpha_allows(noise: str) -> None:
    distribution = NOISES[noise]
    for edge_steps in (-1, 0, 40, 100):
        edge, p = _edge(distribution, edge_steps)
        counts = _votes(distribution, edge_steps, edge_steps + 10, CERTIFICATIONS)
        spread = (p * (1 - p) * N / CERTIFICATIONS) ** 0.5
        assert abs(counts.mean() - N * p) < 5 * spread
        for name in BOUNDS.names():
            plan = CertifyPlan(distribution, name, n=N, alpha=ALPHA, levels=255, dimension=2)
            radius = np.array([_radius(plan, plan.confidence_bound.votes)(count) for count in range(N + 1)])
            # Half-spaces are the theorems' worst case: along the first axis, the true radius is the edge.
            reach = radius * _stretch(distribution)
            false = int((reach[counts] > max(edge, 0.0)).sum())
            assert_rate_within(false, CERTIFICATIONS, ALPHA)


def _stretch(noise: Noise) -> float:
    """The region's extent along the first axis, over its radius."""
    scales = np.atleast_1d(noise.scales())
    return float(scales[0] / scales.min())
