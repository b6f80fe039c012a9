"""Searches by votes, for any model: a geometric grid of σ with a curve through its votes, and the papers' grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.engine.schedule import VoteRequest
from smoothcert.errors import check_count, check_positive
from smoothcert.knobs import knob
from smoothcert.runs.side_files import SearchResult
from smoothcert.smoothing.search import judging
from smoothcert.smoothing.search.base import SEARCHES, Evaluations, Numbered, SearchProblem, SigmaSearch

_ABOVE = (1.0, 2**0.5, 2.0)  # where a round votes, relative to the best σ so far
_PER_OCTAVE = 8  # fineness of the answer: neighbours differ by 9 %, the radius near its top by far less


@dataclass
class _Climb:
    """One input under way."""

    index: int
    x: NDArray[np.generic]
    votes: judging.SigmaVotes
    chosen: int
    sigma: float
    rows: int
    done: bool = False


@SEARCHES.register("ladder")
@dataclass(frozen=True, kw_only=True)
class LadderSearch(SigmaSearch):
    """Votes at σ₀/factor … σ₀·factor with common random numbers, then rounds of votes around the best σ.

    What is certified is votes, so votes are counted: no gradient, no softmax, any model. A probit curve in σ
    joins them (:mod:`smoothcert.smoothing.search.judging`), and the bound that will certify is applied to what it
    promises for n votes. Rounds vote at σ, √2σ and 2σ because at the best σ itself nearly all votes agree. An
    input stops when a round leaves its σ where it was.
    """

    rungs: int = knob(9, "σ on the ladder, evenly spaced in log σ, σ₀ in the middle")
    votes: int = knob(32, "votes at each point")
    rounds: int = knob(2, "rounds of further votes around the best σ, at most")
    round_votes: int = knob(288, "votes of a round, shared by three σ")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("rungs", self.rungs, least=3)
        check_count("votes", self.votes)
        check_count("rounds", self.rounds, least=0)
        check_count("round_votes", self.round_votes, least=len(_ABOVE))

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most."""
        points = len(self._grid(1.0))
        return points * self.votes + self.rounds * len(_ABOVE) * (self.round_votes // len(_ABOVE))

    def search(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """Ladder, rounds, decision."""
        climbs = self._ladder(problem, inputs, on_evaluations)
        low, high = self.limits(problem)
        octaves = np.log2(high / low)
        fine = np.geomspace(low, high, 2 * round(octaves * _PER_OCTAVE / 2) + 1)
        for number in range(self.rounds + 1):
            for climb in climbs:
                if not climb.done:
                    before = climb.sigma
                    climb.sigma = judging.Curve.through(problem, climb.votes, before).best(fine)
                    climb.done = number > 0 and climb.sigma == before
            waiting = [climb for climb in climbs if not climb.done]
            if number < self.rounds and waiting:
                self._round(problem, waiting, number, on_evaluations)
        curves = (judging.Curve.through(problem, climb.votes, climb.sigma) for climb in climbs)
        return [judging.settle(self, curve, c.index, c.sigma, c.rows) for c, curve in zip(climbs, curves)]

    def _grid(self, start: float) -> list[float]:
        side = self.rungs // 2
        steps = [self.factor ** (place / side) for place in range(1, side + 1)]
        return [*(start / step for step in reversed(steps)), start, *(start * step for step in steps)]

    def _ladder(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None
    ) -> list[_Climb]:
        grid = self._grid(problem.start)
        requests = [VoteRequest.product(index, x, grid, 0, self.votes) for index, x in inputs]
        climbs = []
        for request, counts in zip(requests, problem.count(requests, on_evaluations)):
            chosen = judging.chosen_class(self, problem, counts)
            votes = judging.SigmaVotes.of(counts, chosen)
            climbs.append(_Climb(request.index, request.x, votes, chosen, problem.start, len(request)))
        return climbs

    def _round(
        self, problem: SearchProblem, climbs: Sequence[_Climb], number: int, on_rows: Evaluations | None
    ) -> None:
        """Fresh samples at and above each input's best σ."""
        _, high = self.limits(problem)
        each = self.round_votes // len(_ABOVE)
        first = self.votes + number * each
        requests = []
        for climb in climbs:
            sigmas = dict.fromkeys(min(climb.sigma * above, high) for above in _ABOVE)
            requests.append(VoteRequest.product(climb.index, climb.x, list(sigmas), first, first + each))
        for climb, request, counts in zip(climbs, requests, problem.count(requests, on_rows)):
            climb.votes = climb.votes.joined(judging.SigmaVotes.of(counts, climb.chosen))
            climb.rows += len(request)


_FRESH = 1 << 20  # samples of the grid are numbered from here: the comparison's are others


@SEARCHES.register("grid")
@dataclass(frozen=True, kw_only=True)
class GridSearch(judging.ComparedSearch):
    """argmax of σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)) over σ = n/B, 2n/B, … 1 (times ``top``) with n samples at each.

    B = ``budget`` evaluations in all. E is the mean of hard votes, or of probabilities where ``soft`` or where the
    bound takes them, clamped as in the gradient search. σ outside the range of the search are left out, unless
    ``whole``; 0 can't be certified and is left out as well.

    A and B are the two classes ahead at each σ, which need not be those ahead at σ₀; ``paper-grid`` fixes A.
    Published: 200 evaluations, n ∈ {1, 2, 4, 10}, σ up to 1, ``soft``, ``whole`` and ``check_votes`` 0.
    """

    budget: int = knob(200, "evaluations in all")
    samples: int = knob(4, "samples at each σ")
    top: float = knob(1.0, "largest σ of the grid")
    soft: bool = knob(False, "weigh σ by probabilities, whatever votes the bound takes (published)")
    whole: bool = knob(False, "the whole grid, also where σ is out of the factor's range (published)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("budget", self.budget)
        check_count("samples", self.samples)
        check_positive("top", self.top)

    @property
    def evaluations(self) -> int:
        """Rows an input costs at most."""
        grid = self.samples * max(1, self.budget // self.samples)
        return grid + self._votes_at_start + self.check_evaluations

    @property
    def _votes_at_start(self) -> int:
        """Votes that fix the class whose radius is compared; 0: it is the one ahead at each σ."""
        return 0

    def search(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """The grid, then the comparison with σ₀ on other samples."""
        import torch

        points = max(1, self.budget // self.samples)
        low, high = (0.0, math.inf) if self.whole else self.limits(problem)
        grid = [s for s in (self.top * k / points for k in range(1, points + 1)) if low <= s <= high]
        grid = grid or [problem.start]
        # The published grid draws anew for each σ.
        sigmas = np.repeat(np.array(grid), self.samples)
        samples = _FRESH + np.arange(len(sigmas))
        requests = [VoteRequest(index, x, sigmas, samples) for index, x in inputs]
        fixed = self._classes_at_start(problem, inputs, on_evaluations)
        best = []
        for place, counts in enumerate(
            problem.count(requests, on_evaluations, "soft" if self.soft else None)
        ):
            means = torch.from_numpy(counts.classes / self.samples)
            if fixed is None:
                first, second = means.topk(2, dim=1).values.unbind(1)
            else:
                first = means[:, fixed[place]].clone()
                means[:, fixed[place]] = 0
                second = means.amax(1)
            radii = judging.soft_radius(
                problem.noise.name, torch.tensor(grid, dtype=torch.float64), first, second
            )
            best.append(grid[int(radii.argmax())])
        return self.compare(problem, inputs, best, len(sigmas) + self._votes_at_start, on_evaluations)

    def _classes_at_start(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None
    ) -> list[int] | None:
        """The class that each input's radius is of, by votes at σ₀; None: the one ahead at each σ."""
        if not self._votes_at_start:
            return None
        requests = [
            VoteRequest.product(index, x, [problem.start], 2 * _FRESH, 2 * _FRESH + self._votes_at_start)
            for index, x in inputs
        ]
        return [int(counts.classes[0].argmax()) for counts in problem.count(requests, on_evaluations)]


@SEARCHES.register("paper-grid")
@dataclass(frozen=True, kw_only=True)
class PaperGridSearch(GridSearch):
    """The papers' grid to the letter: the radius is that of one class c_A at every σ (Alfarra et al. 2020, Eq. 4).

    c_A is the class of ``class_votes`` votes at σ₀, beside the 200 evaluations; ``grid`` takes the class ahead at each
    σ instead. The whole grid, weighed by probabilities, and what it finds is taken as it is.
    """

    samples: int = knob(1, "samples at each σ")
    soft: bool = knob(
        True, "weigh σ by the model's probabilities, whatever votes the bound takes (published)"
    )
    whole: bool = knob(True, "the whole grid, also where σ is out of the factor's range (published)")
    check_votes: int = knob(
        0,
        "votes at each of four σ that decide whether the σ found beats the start; 0: it is taken (published)",
    )
    class_votes: int = knob(100, "votes at the start that say whose radius is compared")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("class_votes", self.class_votes)

    @property
    def _votes_at_start(self) -> int:
        return self.class_votes
