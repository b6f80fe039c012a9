"""The papers' baseline: the best of evenly spaced σ by a handful of samples each (Alfarra et al., appendix B)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from smoothcert.errors import check_count, check_positive
from smoothcert.knobs import knob
from smoothcert.sampling.common_noise import VoteRequest
from smoothcert.sigma_search.ascent import soft_radius
from smoothcert.sigma_search.base import SEARCHES, Checked, SearchResult, count
from smoothcert.sigma_search.problem import Evaluations, Numbered, Problem

_FRESH = 1 << 20  # samples of the grid are numbered from here: the comparison's are others


@SEARCHES.register("grid")
@dataclass(frozen=True, kw_only=True)
class GridSearch(Checked):
    """argmax of σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)) over σ = n/B, 2n/B, … 1 (times ``top``) with n samples at each.

    B = ``budget`` evaluations in all. E is the mean of hard votes, or of probabilities where ``soft`` or where the
    bound takes them, clamped as in the gradient search. σ outside the range of the search are left out, unless
    ``whole``; 0 can't be certified and is left out too.

    Published: 200 evaluations, n ∈ {1, 2, 4, 10}, σ up to 1, ``soft``, ``whole`` and ``check_votes`` 0.
    """

    budget: int = knob(200, "evaluations in all")
    samples: int = knob(4, "samples at each σ")
    top: float = knob(1.0, "largest σ of the grid")
    soft: bool = knob(
        False, "weigh σ by the model's probabilities, whatever votes the bound takes (published)"
    )
    whole: bool = knob(False, "the whole grid, also where σ is out of the factor's range (published)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("budget", self.budget)
        check_count("samples", self.samples)
        check_positive("top", self.top)

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most."""
        return self.samples * max(1, self.budget // self.samples) + self.check_evaluations

    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """The grid, then the comparison with σ₀ on other samples."""
        points = max(1, self.budget // self.samples)
        low, high = (0.0, math.inf) if self.whole else self.limits(problem)
        grid = [s for s in (self.top * k / points for k in range(1, points + 1)) if low <= s <= high]
        grid = grid or [problem.start]
        # The published grid draws anew for each σ.
        sigmas = np.repeat(np.array(grid), self.samples)
        samples = _FRESH + np.arange(len(sigmas))
        requests = [VoteRequest(index, x, sigmas, samples) for index, x in inputs]
        best = []
        cast = problem.cast(requests, on_evaluations, "soft" if self.soft else None)
        for request, ballots in zip(requests, cast):
            counted = count(request, ballots, problem.prepared.classes)
            means = torch.from_numpy(np.stack([counted[s] for s in grid]) / self.samples)
            first, second = means.topk(2, dim=1).values.unbind(1)
            radii = soft_radius(problem.noise.name, torch.tensor(grid, dtype=torch.float64), first, second)
            best.append(grid[int(radii.argmax())])
        return self.compare(problem, inputs, best, len(sigmas), on_evaluations)
