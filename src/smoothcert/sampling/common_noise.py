"""Votes of searches: one input's samples at many σ, with common random numbers.

Sample s of input i is x + σ·u, rounded to the grid, with u drawn from the stream (seed, i, SEARCH), which no
certificate uses. The same u serves every σ, so that differences between σ come from the model and not from chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.noise import Grid, Noise
from smoothcert.sampling.ballots import Ballots
from smoothcert.sampling.lanes import rounds, slot_of
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.streams import BlockBits, unit_noise
from smoothcert.tally import Phase, Stream

_DRAWN_TOGETHER = 32  # samples that share a random state
_ROWS = 32  # rows of one input that stay together in a pass


@dataclass(frozen=True)
class VoteRequest:
    """Row r is sample ``samples[r]`` of the input at ``sigmas[r]``; a ``shape`` stretches each coordinate's noise."""

    index: int
    x: NDArray[np.generic]
    sigmas: NDArray[np.float64]
    samples: NDArray[np.int64]
    shape: NDArray[np.float64] | None = None

    @classmethod
    def product(
        cls, index: int, x: NDArray[np.generic], sigmas: Sequence[float], start: int, stop: int
    ) -> VoteRequest:
        """Samples ``start`` to ``stop`` at each of ``sigmas``: rows of one σ are neighbours."""
        samples = np.arange(start, stop)
        repeated = np.repeat(np.asarray(sigmas, np.float64), len(samples))
        return cls(index, x, repeated, np.tile(samples, len(sigmas)))

    def __len__(self) -> int:
        return len(self.sigmas)


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows ``first`` to ``last`` of a request; its blocks of unit noise and the grid's steps at each of its σ."""

    request: VoteRequest
    x: torch.Tensor
    noise: dict[int, torch.Tensor]
    steps_per_unit: dict[float, float]
    first: int
    last: int

    @property
    def index(self) -> int:
        return self.request.index

    @property
    def wanted(self) -> slice:
        return slice(0, self.last - self.first)

    def fill(self, out: torch.Tensor, _bits: BlockBits, /) -> None:
        for row, into in enumerate(out):
            r = min(self.first + row, self.last - 1)
            number, place = divmod(int(self.request.samples[r]), _DRAWN_TOGETHER)
            sigma = float(self.request.sigmas[r])
            torch.add(self.x, self.noise[number][place], alpha=sigma, out=into)
            # On the grid, as certifying votes are: the search sees the same points as certification.
            steps = self.steps_per_unit[sigma]
            into.mul_(steps).round_().div_(steps)


def votes_at_sigmas(
    passes: Passes,
    noise: Noise,
    seed: int,
    grid: Grid,
    requests: Sequence[VoteRequest],
    on_votes: Callable[[int], None] | None = None,
) -> list[Ballots]:
    """The votes of each request, row by row; ``on_votes`` is called with the number of votes just cast."""
    chunk = passes.layout.chunk
    size = next(rows for rows in range(min(_ROWS, chunk), 0, -1) if chunk % rows == 0)
    slots = chunk // size

    def parts_of(request: VoteRequest) -> list[_Part]:
        """Parts of ``size`` rows, with unit noise that is drawn once for all σ."""
        x = passes.tensor(request.index, request.x)
        bits, stream, drawn = BlockBits(), Stream(seed, request.index, Phase.SEARCH), {}
        for number in np.unique(request.samples // _DRAWN_TOGETHER).tolist():
            unit = unit_noise(noise, (_DRAWN_TOGETHER, *x.shape), x.dtype, bits.seek(stream, number))
            if request.shape is not None:
                unit.mul_(torch.from_numpy(request.shape).to(x.dtype))
            drawn[number] = unit
        steps = {sigma: _steps_per_unit(grid, sigma) for sigma in np.unique(request.sigmas).tolist()}
        edges = [*range(0, len(request), size), len(request)]
        return [_Part(request, x, drawn, steps, *edge) for edge in itertools.pairwise(edges)]

    votes: dict[_Part, Ballots] = {}
    with passes.threads() as pool:
        parts = list(pool.map(parts_of, requests))
        placed = (
            ((slot_of(part.index, slots) + number) % slots, part)
            for own in parts
            for number, part in enumerate(own)
        )
        for cast in pool.map(passes.cast, rounds(slots, placed)):
            votes |= dict(cast)
            if on_votes is not None:
                on_votes(sum(part.last - part.first for part, _ in cast))
    return [Ballots.joined([votes[part] for part in own]) for own in parts]


@lru_cache(maxsize=1024)
def _steps_per_unit(grid: Grid, sigma: float) -> float:
    return grid.steps_per_unit(sigma)
