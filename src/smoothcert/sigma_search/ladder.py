"""Hard votes on a ladder of σ, a curve through them, and more votes where the curve is decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import check_count
from smoothcert.knobs import knob
from smoothcert.sampling.common_noise import VoteRequest
from smoothcert.sigma_search.base import (
    SEARCHES,
    SearchResult,
    SigmaSearch,
    chosen_class,
    count,
    settle,
    votes_of,
)
from smoothcert.sigma_search.curve import Curve, Votes
from smoothcert.sigma_search.problem import Evaluations, Numbered, Problem

_ABOVE = (1.0, 2**0.5, 2.0)  # where a round votes, relative to the best σ so far
_PER_OCTAVE = 8  # fineness of the answer: neighbours differ by 9 %, the radius near its top by far less


@dataclass
class _Climb:
    """One input under way."""

    index: int
    x: NDArray[np.generic]
    votes: Votes
    chosen: int
    sigma: float
    rows: int
    done: bool = False


@SEARCHES.register("ladder")
@dataclass(frozen=True, kw_only=True)
class LadderSearch(SigmaSearch):
    """Votes at σ₀/factor … σ₀·factor with common random numbers, then rounds of votes around the best σ.

    What is certified is votes, so votes are counted: no gradient, no softmax, any model. A probit curve in σ
    joins them (:mod:`smoothcert.sigma_search.curve`), and the bound that will certify is applied to what it
    promises for n votes. Rounds vote at σ, √2σ and 2σ because at the best σ itself nearly all votes agree. An
    input stops when a round leaves its σ where it was.
    """

    rungs: int = knob(9, "σ on the ladder, evenly spaced in log σ, σ₀ in the middle")
    votes: int = knob(32, "votes at each rung")
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
        rungs = len(self._rungs(1.0))
        return rungs * self.votes + self.rounds * len(_ABOVE) * (self.round_votes // len(_ABOVE))

    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
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
                    climb.sigma, _ = Curve.through(problem, climb.votes, before).best(fine)
                    climb.done = number > 0 and climb.sigma == before
            waiting = [climb for climb in climbs if not climb.done]
            if number < self.rounds and waiting:
                self._round(problem, waiting, number, on_evaluations)
        return [
            settle(self, Curve.through(problem, one.votes, one.sigma), one.index, one.sigma, one.rows)
            for one in climbs
        ]

    def _rungs(self, start: float) -> list[float]:
        side = self.rungs // 2
        steps = [self.factor ** (place / side) for place in range(1, side + 1)]
        return [*(start / step for step in reversed(steps)), start, *(start * step for step in steps)]

    def _ladder(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None
    ) -> list[_Climb]:
        rungs = self._rungs(problem.start)
        requests = [VoteRequest.product(index, x, rungs, 0, self.votes) for index, x in inputs]
        climbs = []
        for request, ballots in zip(requests, problem.cast(requests, on_evaluations)):
            counted = count(request, ballots, problem.prepared.classes)
            chosen = chosen_class(self, problem, counted, self.votes)
            votes = votes_of(counted, self.votes, chosen)
            climbs.append(_Climb(request.index, request.x, votes, chosen, problem.start, len(request)))
        return climbs

    def _round(
        self, problem: Problem, climbs: Sequence[_Climb], number: int, on_evaluations: Evaluations | None
    ) -> None:
        """Fresh samples at and above each input's best σ."""
        _, high = self.limits(problem)
        each = self.round_votes // len(_ABOVE)
        first = self.votes + number * each
        requests = []
        for climb in climbs:
            levels = dict.fromkeys(min(climb.sigma * above, high) for above in _ABOVE)
            requests.append(VoteRequest.product(climb.index, climb.x, list(levels), first, first + each))
        for climb, request, ballots in zip(climbs, requests, problem.cast(requests, on_evaluations)):
            counted = count(request, ballots, problem.prepared.classes)
            climb.votes = climb.votes.joined(votes_of(counted, each, climb.chosen))
            climb.rows += len(request)
