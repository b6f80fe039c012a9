"""Searches for the σ of one input: a registry of frozen dataclasses, each with one method over a batch.

A search looks at samples of its own streams only (:class:`Phase.SEARCH`), and its answer is fixed before the first
certifying vote is drawn: to those votes σ*ₓ is a constant, and the certificate at it holds as at any other σ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, check_count
from smoothcert.knobs import knob
from smoothcert.noise import DiagonalNoise, Noise
from smoothcert.registry import Registry
from smoothcert.sampling import BaseClassifier
from smoothcert.sampling.ballots import Ballots
from smoothcert.sampling.common_noise import VoteRequest
from smoothcert.sampling.gradients import check_differentiable
from smoothcert.sigma_search.curve import Curve, Votes
from smoothcert.sigma_search.problem import NEEDS_GRADIENTS, Evaluations, Numbered, Problem, with_sigma
from smoothcert.tally import SOFT_UNIT

Reason = Literal["improved", "unchecked", "no gain", "abstains", "not finite", "out of range"]
"""Why σ is what it is; for all but the first two, σ₀ was kept.

``unchecked``: where the search ended, not compared with σ₀. ``no gain``: no other σ promised more.
``abstains``: search votes at σ₀ wouldn't be certified. ``not finite``: the model's gradient wasn't a number.
``out of range``: σ ran to 0 or beyond the largest factor.
"""

_HIGHER = (2**0.5, 2.0)  # of the larger σ compared: where votes still say something when both are unanimous


@dataclass(frozen=True)
class SearchResult:
    """A search's answer for one input: its σ, and the radii that search votes promised at σ₀ and there.

    Where it found a scale for each coordinate, that is ``noise``; σ is then their geometric mean, and the radius that
    of the ball of the region's volume.
    """

    index: int
    sigma: float
    reason: Reason
    start_radius: float | None
    radius: float | None
    """None where the search ended before any vote."""
    evaluations: int
    """Rows that went through the network, forward and backward passes counted alike."""
    noise: DiagonalNoise | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; of ``noise`` its name and the hash of its scales, which are too many for a line."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "noise"}
        if self.noise is None:
            return values
        return values | {"noise": self.noise.name, "sigmas_sha256": self.noise.sha256}

    def noise_like(self, noise: Noise) -> Noise:
        """What to certify with, where the search began with ``noise``."""
        return with_sigma(noise, self.sigma) if self.noise is None else self.noise

    def drawn(self, noise: Noise) -> SearchResult:
        """The same with the scales that a sampler makes of those found, where it has too few for all of them."""
        return replace(self, sigma=noise.sigma, noise=noise) if isinstance(noise, DiagonalNoise) else self


@dataclass(frozen=True, kw_only=True)
class SigmaSearch(ABC):
    """Finds σ*ₓ between σ₀/``factor`` and σ₀·``factor``, or keeps σ₀ and says why.

    The range: p_A at the edge of what CERTIFY can certify falls off within an octave or two of the σ that a network
    was trained with (factor 4 spans the σ = 0.12 … 1.0 of the papers' models twice over).
    """

    uses_gradients: ClassVar[bool] = False

    factor: float = knob(4.0, "σ stays within this factor of where it starts")
    rescue: bool = knob(False, "also move inputs that abstain at the σ they start with")

    def __post_init__(self) -> None:
        if not 1 < self.factor <= 64:
            raise InvalidValueError(f"factor must lie above 1 and not above 64, got {self.factor}")

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Rows an input costs at most, forward and backward passes counted alike."""

    @abstractmethod
    def search(
        self, problem: Problem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """An answer for each (index, input), in order; it depends on nothing but problem, index and input."""

    def check(self, base: BaseClassifier) -> None:
        """Refuse a model that this search can't work with."""
        if self.uses_gradients:
            check_differentiable(base, *NEEDS_GRADIENTS)

    def as_json(self) -> dict[str, Any]:
        """Name and knobs, flat, as a plan states them."""
        knobs = {f"sigma_search.{each.name}": getattr(self, each.name) for each in fields(self)}
        return {"sigma_search": search_name(self), **knobs}

    @classmethod
    def from_knobs(cls, stated: Mapping[str, Any]) -> Self:
        """The search with the knobs that a plan states; those that are gone from it since take no part."""
        return cls(**{each.name: stated[each.name] for each in fields(cls) if each.name in stated})

    def limits(self, problem: Problem) -> tuple[float, float]:
        """The smallest and the largest σ it may answer."""
        return problem.start / self.factor, problem.start * self.factor


SEARCHES: Registry[type[SigmaSearch]] = Registry("sigma search", __package__)


def search_name(search: SigmaSearch) -> str:
    """The name a search's class is registered under, or else the class's own."""
    return SEARCHES.name_of(type(search)) or type(search).__name__


def count(request: VoteRequest, ballots: Ballots, classes: int) -> dict[float, NDArray[np.float64]]:
    """Votes for each class at each σ of a request; for soft votes sums of probabilities."""
    found = {}
    for sigma in dict.fromkeys(request.sigmas.tolist()):
        rows = request.sigmas == sigma
        found[sigma] = (
            np.bincount(ballots.labels[rows], minlength=classes).astype(np.float64)
            if ballots.probabilities is None
            else ballots.probabilities[rows].sum(0) / SOFT_UNIT
        )
    return found


def votes_of(counted: dict[float, NDArray[np.float64]], votes: int, chosen: int) -> Votes:
    """Counts at each σ as the curve takes them."""
    rows = np.stack(list(counted.values()))
    return Votes(
        np.array(list(counted)),
        np.full(len(rows), float(votes)),
        rows[:, chosen],
        np.delete(rows, chosen, axis=1).max(1),
    )


def settle(search: SigmaSearch, curve: Curve, index: int, sigma: float, evaluations: int) -> SearchResult:
    """σ if the curve promises more there than at σ₀, else σ₀."""
    start = curve.problem.start
    before, after = curve.radius(start), curve.radius(sigma)
    if before == 0 and (not search.rescue or after == 0):
        return SearchResult(index, start, "abstains", 0.0, 0.0, evaluations)
    if after <= before:
        return SearchResult(index, start, "no gain", before, before, evaluations)
    return SearchResult(index, sigma, "improved", before, after, evaluations)


@dataclass(frozen=True, kw_only=True)
class Checked(SigmaSearch):
    """A search whose σ is compared with σ₀ afterwards, by votes that it hasn't seen; as published, it isn't."""

    check_votes: int = knob(
        64,
        "votes at each of four σ that decide whether the σ found beats the start; 0: it is taken (published)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("check_votes", self.check_votes, least=0)

    @property
    def check_evaluations(self) -> int:
        """Rows of the comparison."""
        return self.check_votes * (2 + len(_HIGHER))

    def compare(
        self,
        problem: Problem,
        inputs: Sequence[Numbered],
        sigmas: Sequence[float],
        spent: int,
        on_evaluations: Evaluations | None,
    ) -> list[SearchResult]:
        """Keep each σ that promises more than σ₀; ``spent`` rows were used to find them."""
        if self.check_votes == 0:
            return [
                SearchResult(index, sigma, "unchecked", None, None, spent)
                for (index, _), sigma in zip(inputs, sigmas)
            ]
        requests = []
        for (index, x), sigma in zip(inputs, sigmas):
            top = max(sigma, problem.start)
            levels = dict.fromkeys([problem.start, sigma, *(top * higher for higher in _HIGHER)])
            requests.append(VoteRequest.product(index, x, list(levels), 0, self.check_votes))
        found = []
        for request, ballots, sigma in zip(requests, problem.cast(requests, on_evaluations), sigmas):
            counted = count(request, ballots, problem.prepared.classes)
            chosen = chosen_class(self, problem, counted, self.check_votes)
            votes = votes_of(counted, self.check_votes, chosen)
            curve = Curve.through(problem, votes, sigma)
            found.append(settle(self, curve, request.index, sigma, spent + len(request)))
        return found


def chosen_class(
    search: SigmaSearch, problem: Problem, counted: dict[float, NDArray[np.float64]], votes: int
) -> int:
    """The class ahead at σ₀, or, to rescue an input that has no majority there, at the smallest σ."""
    at_start = counted[problem.start]
    if search.rescue and at_start.max() * 2 <= votes:
        return int(counted[min(counted)].argmax())
    return int(at_start.argmax())
