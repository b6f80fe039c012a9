"""The input of a search: the model, where σ starts, and the certification that will follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import Bound, VoteKind
from smoothcert.noise import NOISES, Grid, Noise
from smoothcert.sampling import BaseClassifier, Execution, Prepared
from smoothcert.sampling.ballots import Ballots
from smoothcert.sampling.common_noise import VoteRequest, votes_at_sigmas
from smoothcert.sampling.gradients import GradientPasses, Wave, check_differentiable
from smoothcert.sampling.passes import Passes

R = TypeVar("R")

NEEDS_GRADIENTS = ("this sigma search", "use 'ladder' or 'grid', which only count votes")
"""Subject and remedy of the error for models without gradients."""

Numbered = tuple[int, NDArray[np.generic]]

Evaluations = Callable[[int], None]
"""Called with the number of network evaluations just done."""


@dataclass(frozen=True)
class Problem:
    """A prepared model, noise at σ₀, and the bound that n votes at level α will be given to afterwards."""

    base: BaseClassifier
    prepared: Prepared
    noise: Noise
    bound: Bound
    n: int
    alpha: float
    seed: int = 0
    execution: Execution = field(default_factory=Execution)
    grid: Grid = field(default_factory=lambda: Grid.of(None))

    @property
    def start(self) -> float:
        """σ₀."""
        return self.noise.sigma

    def _passes(self, votes: VoteKind | None = None) -> Passes:
        purpose = "searching sigma for inputs {indices}"
        return Passes(self.prepared, votes or self.bound.votes, self.execution, purpose)

    def cast(
        self,
        requests: Sequence[VoteRequest],
        on_votes: Evaluations | None = None,
        votes: VoteKind | None = None,
    ) -> list[Ballots]:
        """The votes of each request, row by row; of the kind that the bound takes, unless another is asked for."""
        return votes_at_sigmas(self._passes(votes), self.noise, self.seed, self.grid, requests, on_votes)

    def ascend(
        self,
        inputs: Sequence[Numbered],
        climb: Callable[[Wave], Sequence[R]],
        *,
        samples: int,
        rows: int,
        channels_last: bool = False,
        on_inputs: Callable[[int], None] | None = None,
    ) -> list[R]:
        """What ``climb`` finds for each input by gradients over fresh samples, in waves of passes of ``rows`` rows."""
        gradients = GradientPasses(
            check_differentiable(self.base, *NEEDS_GRADIENTS),
            self.execution,
            remedy="use sigma search 'ladder' or 'grid'",
            # The prepared copy was made for inference only, and 16-bit types lose the small steps of σ.
            dtype=self.prepared.numerics.noise_dtype(),
            channels_last=channels_last and len(self.prepared.input_shape) == 3,
        )
        passes = self._passes()
        checked = [(index, passes.tensor(index, x)) for index, x in inputs]
        return gradients.ascend(
            checked, self.noise, self.seed, climb, samples=samples, rows=rows, on_inputs=on_inputs
        )


def with_sigma(noise: Noise, sigma: float) -> Noise:
    """The same kind of noise at another σ."""
    return NOISES[noise.kind](sigma)
