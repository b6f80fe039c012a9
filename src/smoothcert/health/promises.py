"""Promises put to the test on this machine: the same bits however votes are scheduled, and the noise's distribution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from smoothcert.errors import SmoothcertError
from smoothcert.health.networks import RandomNetwork
from smoothcert.health.speed import SIGMA, routes_of
from smoothcert.noise import NOISES, Grid, on_grid
from smoothcert.noise.thresholds import BITS
from smoothcert.sampling import Execution, Numerics
from smoothcert.sampling.execution import usable_cores
from smoothcert.smoothing import SmoothedClassifier

LEAST_P = 1e-6
"""Below this probability of a worse fit, noise isn't what it should be. Streams are fixed: no chance is in it."""

_BINS = 16
_SHAPE = (4,)


@dataclass(frozen=True)
class SameBits:
    """Whether a network's votes on a route are the same for any batch, number of workers and order of inputs."""

    network: str
    device: str
    route: str
    same: bool


def same_bits(network: RandomNetwork, device: str, votes: int) -> tuple[list[SameBits], list[str]]:
    """What was found on every route that works, and why others don't.

    Votes are soft: sums of probabilities, in units of 2⁻³², show a last bit that no class would.
    """
    module, found, failures = network.module(), [], []
    cores = max(2, usable_cores())
    for route in routes_of(module, device):
        classifier = SmoothedClassifier(
            module,
            sigma=SIGMA,
            bound="hoeffding",
            seed=0,
            levels=255,
            numerics=Numerics(route=route),
            execution=Execution(device),
        )
        try:
            rows = classifier.prepare(network.input_shape).numerics.layout().rows
            ways = [
                Execution(device, workers=1),
                Execution(device, workers=cores, batch=rows),
                Execution(device, workers=cores, batch=3 * rows),
            ]
            digests = {
                _digest(classifier.on(way), network, votes, backwards=turn % 2 == 1)
                for turn, way in enumerate(ways)
            }
        except SmoothcertError as error:
            failures.append(f"{network.name}, {device}, {route}: {error}")
            continue
        found.append(SameBits(network.name, device, route, len(digests) == 1))
    return found, failures


def _digest(classifier: SmoothedClassifier, network: RandomNetwork, votes: int, *, backwards: bool) -> str:
    inputs = list(enumerate(network.images(3)))
    tallies = dict(classifier.cast_each(inputs[::-1] if backwards else inputs, votes))
    told = "|".join(f"{index} {tallies[index].counts} {tallies[index].sums}" for index in sorted(tallies))
    return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class NoiseFit:
    """How well drawn noise fits its distribution, as a model saw it."""

    noise: str
    what: str
    device: str
    votes: int
    chi2: float
    p: float

    @property
    def fits(self) -> bool:
        """Whether there is no reason to doubt it."""
        return self.p >= LEAST_P


class _Bins(nn.Module):
    """Votes for the bin that its first coordinate falls into, or its first two together."""

    def __init__(self, edges: NDArray[np.float64], pairs: bool) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges, dtype=torch.float64))
        self.pairs = pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        edges: torch.Tensor = self.edges.to(x.dtype)  # type: ignore[assignment]
        bins = torch.bucketize(x[:, :2].contiguous(), edges)
        one = bins[:, 0] * (len(edges) + 1) + bins[:, 1] if self.pairs else bins[:, 0]
        scores: torch.Tensor = nn.functional.one_hot(one, _BINS).to(x.dtype)
        return scores


def noise_fits(device: str, votes: int) -> list[NoiseFit]:
    """χ² of each noise, one coordinate in 16 bins and two in 4 × 4, through noise, model and counting as in certify.

    Edges of bins lie between the grid's points, where probabilities are known exactly.
    """
    found = []
    for name in NOISES:
        for pairs in (False, True):
            noise = NOISES[name](1.0)
            steps = float(on_grid(noise, Grid.of(None), _SHAPE).steps_per_unit)
            ends = noise.thresholds(Fraction(steps)) / 2.0**BITS
            parts = round(_BINS**0.5) if pairs else _BINS
            places = ends.searchsorted(np.arange(1, parts) / parts)
            edges = np.asarray((places - len(ends) // 2 + 0.5) / steps, dtype=np.float64)
            shares = np.diff([0.0, *ends[places], 1.0])
            expected = np.outer(shares, shares).reshape(-1) if pairs else shares
            classifier = SmoothedClassifier(
                _Bins(edges, pairs), sigma=1.0, noise=name, seed=0, execution=Execution(device)
            )
            ((_, tally),) = classifier.cast_each([(0, np.zeros(_SHAPE))], votes)
            test = stats.chisquare(tally.counts, expected * votes)
            what = "two coordinates" if pairs else "one coordinate"
            found.append(NoiseFit(name, what, device, votes, float(test.statistic), float(test.pvalue)))
    return found
