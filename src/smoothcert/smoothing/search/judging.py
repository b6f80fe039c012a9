"""How good a σ is for an input: the papers' objective with its gradient, and a curve through few votes.

The curve is a probit curve through votes at several σ, and has the radius it promises for n of them:
Φ⁻¹(p_A) = a/t + b + c·t with t = σ/σ₀. For a linear classifier a/t is exact, and for networks σΦ⁻¹(p_A) was seen to
fall smoothly in σ. The best σ is where p_A is so close to 1 that a few hundred votes there are unanimous; the
curve carries over what votes at larger σ say about it. No guarantee rests on it: it guides a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.bounds.base import VoteKind
from smoothcert.engine.schedule import VoteRequest
from smoothcert.errors import InvalidValueError, ModelError, check_count
from smoothcert.knobs import knob
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES
from smoothcert.runs.side_files import SearchResult
from smoothcert.smoothing.search.base import (
    Array,
    Counts,
    Evaluations,
    Numbered,
    SearchProblem,
    SigmaSearch,
    with_sigma,
)
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

if TYPE_CHECKING:
    from torch import Tensor, nn

LEAST_MEAN = 0.02
"""Published: Alfarra et al. clamp both means to [0.02, 0.98]."""

_PRIOR_SD = np.array([20.0, 3.0, 1.5])  # wide: it decides only where the votes say nothing
_BANDWIDTH = 0.8  # in log σ: votes at e times the σ of interest count half as much
_NEWTON_STEPS = 40
_LARGEST_Z = 8.0
_MOST_OTHERS = 64
_HIGHER = (2**0.5, 2.0)  # of the larger σ compared: where votes still say something when both are unanimous


def soft_radius(
    noise: str, sigma: Tensor, first: Tensor, second: Tensor, least: float = LEAST_MEAN
) -> Tensor:
    """The radius from means of the two classes ahead: σ/2 (Φ⁻¹(E_A) − Φ⁻¹(E_B)), or λ(E_A − E_B) for uniform noise.

    Φ⁻¹ is steep near 0 and 1, so both means are clamped to [``least``, 1 − ``least``] before it.
    """
    kind = NOISES[noise]
    if kind.steep:
        first, second = first.clamp(least, 1 - least), second.clamp(least, 1 - least)
    radius: Tensor = kind.semi_axis * sigma * kind.soft_gap(first, second)
    return radius


def leading_means(model: nn.Module, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """The mean softmax of the two classes ahead, over samples of shape (n, inputs, …)."""
    logits = model(noisy.flatten(0, 1))
    if not logits.requires_grad:
        raise ModelError("no gradient runs from the model's outputs to its inputs")
    means = logits.reshape(*noisy.shape[:2], -1).softmax(-1).mean(0)
    first, second = means.topk(2, dim=1).values.unbind(1)
    return first, second


def radius_gradient(
    model: nn.Module,
    x: Tensor,
    unit: Tensor,
    sigma: Tensor,
    noise: str = DEFAULT_NOISE,
    least: float = LEAST_MEAN,
) -> tuple[Tensor, Tensor]:
    """(R, dR/dσ) of each input at its own σ over the samples x + σ·unit (Alfarra et al. 2020, Algorithm 1).

    ``unit`` is noise of standard deviation 1 with the samples in front: (n, inputs, …). The weights take no part
    if they need no gradient. Cost: one forward pass of n rows for each input and one backward pass to them.
    """
    import torch

    if unit.shape[1:] != x.shape:
        raise InvalidValueError(f"unit noise must have shape (n, *{tuple(x.shape)}), got {tuple(unit.shape)}")
    with torch.enable_grad():
        point = sigma.detach().to(x.dtype).requires_grad_()
        noisy = x + unit * point.reshape(-1, *[1] * (x.ndim - 1))
        radius = soft_radius(noise, point, *leading_means(model, noisy), least)
        # Inputs don't share terms, so the gradient of the sum holds each one's own.
        (gradient,) = torch.autograd.grad(radius.sum(), point)
    return radius.detach(), gradient


@dataclass(frozen=True)
class SigmaVotes:
    """What n votes at each of several σ gave: the chosen class's share and its strongest rival's, in votes."""

    sigmas: Array
    n: Array
    chosen: Array
    rival: Array

    @classmethod
    def of(cls, counts: Counts, chosen: int) -> SigmaVotes:
        """Counts as the curve takes them."""
        rows, rival = counts.classes, np.delete(counts.classes, chosen, axis=1).max(1)
        return cls(np.array(counts.sigmas), np.full(len(rows), float(counts.n)), rows[:, chosen], rival)

    def joined(self, later: SigmaVotes) -> SigmaVotes:
        """Both."""
        return SigmaVotes(*map(np.concatenate, zip(vars(self).values(), vars(later).values())))


@dataclass(frozen=True)
class Curve:
    """The two probabilities as functions of σ, and what CERTIFY would make of them."""

    problem: SearchProblem
    chosen: Array
    rival: Array

    @classmethod
    def through(cls, problem: SearchProblem, votes: SigmaVotes, near: float) -> Curve:
        """The curve that suits the votes best, those around the σ ``near`` before others."""
        weight = np.exp(-0.5 * (np.log(votes.sigmas / near) / _BANDWIDTH) ** 2)
        t = votes.sigmas / problem.start
        against = -fit(t, votes.n - votes.rival, votes.n, weight)
        return cls(problem, fit(t, votes.chosen, votes.n, weight), against)

    def probabilities(self, sigma: float) -> tuple[float, float]:
        """(p_A, p_B) at σ."""
        from scipy.special import ndtr

        row = _features(np.array([sigma / self.problem.start]))[0]
        chosen, rival = float(ndtr(row @ self.chosen)), float(ndtr(row @ self.rival))
        return chosen, min(rival, 1.0 - chosen)

    def radius(self, sigma: float) -> float:
        """The radius that CERTIFY would return at σ if its votes came out as the curve says."""
        problem = self.problem
        expected = _expected(problem.n, *self.probabilities(sigma), problem.bound.votes)
        bounds = problem.bound(expected, 0, problem.alpha)
        return with_sigma(problem.noise, sigma).certificate.radius(bounds)

    def best(self, sigmas: Array) -> float:
        """The σ of the largest radius among ``sigmas``; of equal ones the smallest."""
        return float(sigmas[int(np.argmax([self.radius(float(sigma)) for sigma in sigmas]))])


def _expected(n: int, chosen: float, rival: float, votes: VoteKind) -> Tally:
    """n votes that came out as the probabilities say; what neither class got is spread thinly over others."""
    first, second = math.floor(chosen * n), math.floor(rival * n)
    rest = n - first - second
    parts = min(_MOST_OTHERS, max(1, math.ceil(rest / max(second, 1))))
    counts = (first, second, *(rest // parts + (part < rest % parts) for part in range(parts)))
    soft = tuple(count * SOFT_UNIT for count in counts) if votes == "soft" else None
    return Tally(Stream(0, 0, Phase.SEARCH), 0, n, counts, soft, soft)


def fit(t: Array, successes: Array, n: Array, weight: Array) -> Array:
    """Coefficients of the most likely curve under a wide prior; votes may be fractional (soft votes)."""
    from scipy.special import log_ndtr

    x, precision = _features(t), _PRIOR_SD**-2
    failures = n - successes
    beta = np.array([1.0, 0.0, 0.0])

    def value(b: Array) -> float:
        z = x @ b
        likelihood = weight @ (successes * log_ndtr(z) + failures * log_ndtr(-z))
        return float(likelihood - 0.5 * precision @ (b * b))

    current = value(beta)
    for _ in range(_NEWTON_STEPS):
        z = np.clip(x @ beta, -_LARGEST_Z, _LARGEST_Z)
        log_density = -0.5 * z * z - 0.5 * math.log(2 * math.pi)
        up, down = np.exp(log_density - log_ndtr(z)), np.exp(log_density - log_ndtr(-z))
        slope = x.T @ (weight * (successes * up - failures * down)) - precision * beta
        bend = (x.T * (weight * n * up * down)) @ x + np.diag(precision)
        step = np.linalg.solve(bend, slope)
        while (after := value(beta + step)) < current and float(np.abs(step).max()) > 1e-6:
            step = step / 2
        if after < current + 1e-6:
            break
        beta, current = beta + step, after
    return np.asarray(beta, dtype=np.float64)


def _features(t: Array) -> Array:
    return np.stack([1 / t, np.ones_like(t), t], axis=1)


def chosen_class(search: SigmaSearch, problem: SearchProblem, counts: Counts) -> int:
    """The class ahead at σ₀, or, to rescue an input that has no majority there, at the smallest σ."""
    at_start = counts.at(problem.start)
    if search.rescue and at_start.max() * 2 <= counts.n:
        return int(counts.at(min(counts.sigmas)).argmax())
    return int(at_start.argmax())


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
class ComparedSearch(SigmaSearch):
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
        problem: SearchProblem,
        inputs: Sequence[Numbered],
        sigmas: Sequence[float],
        spent: int,
        on_evaluations: Evaluations | None,
    ) -> list[SearchResult]:
        """Keep each σ that promises more than σ₀; ``spent`` rows were used to find them."""
        if self.check_votes == 0:
            ended = ((index, sigma) for (index, _), sigma in zip(inputs, sigmas))
            return [SearchResult(index, sigma, "unchecked", None, None, spent) for index, sigma in ended]
        requests = []
        for (index, x), sigma in zip(inputs, sigmas):
            top = max(sigma, problem.start)
            compared = dict.fromkeys([problem.start, sigma, *(top * higher for higher in _HIGHER)])
            requests.append(VoteRequest.product(index, x, list(compared), 0, self.check_votes))
        results = []
        for request, counts, sigma in zip(requests, problem.count(requests, on_evaluations), sigmas):
            votes = SigmaVotes.of(counts, chosen_class(self, problem, counts))
            curve = Curve.through(problem, votes, sigma)
            results.append(settle(self, curve, request.index, sigma, spent + len(request)))
        return results
