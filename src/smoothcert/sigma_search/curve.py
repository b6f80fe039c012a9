"""How the votes change with σ: a probit curve through few votes at several σ, and the radius it promises.

Φ⁻¹(p_A) = a/t + b + c·t with t = σ/σ₀. For a linear classifier a/t is exact, and for networks σΦ⁻¹(p_A) was seen to
fall smoothly in σ. The best σ is where p_A is so close to 1 that a few hundred votes there are unanimous; the
curve carries over what votes at larger σ say about it. No promise rests on it: it guides a search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from smoothcert.bounds import VoteKind
from smoothcert.certificates import certificate_for
from smoothcert.sigma_search.problem import Problem, with_sigma
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

Array = NDArray[np.float64]

_PRIOR_SD = np.array([20.0, 3.0, 1.5])  # wide: it decides only where the votes say nothing
_BANDWIDTH = 0.8  # in log σ: votes at e times the σ of interest count half as much
_NEWTON_STEPS = 40
_LARGEST_Z = 8.0
_MOST_OTHERS = 64


@dataclass(frozen=True)
class Votes:
    """What m votes at each of several σ gave: the chosen class's share and its strongest rival's, in votes."""

    sigmas: Array
    n: Array
    chosen: Array
    rival: Array

    def joined(self, later: Votes) -> Votes:
        """Both."""
        return Votes(*map(np.concatenate, zip(vars(self).values(), vars(later).values())))


@dataclass(frozen=True)
class Curve:
    """The two probabilities as functions of σ, and what CERTIFY would make of them."""

    problem: Problem
    chosen: Array
    rival: Array

    @classmethod
    def through(cls, problem: Problem, votes: Votes, near: float) -> Curve:
        """The curve that suits the votes best, those around the σ ``near`` before others."""
        weight = np.exp(-0.5 * (np.log(votes.sigmas / near) / _BANDWIDTH) ** 2)
        t = votes.sigmas / problem.start
        return cls(
            problem,
            fit(t, votes.chosen, votes.n, weight),
            -fit(t, votes.n - votes.rival, votes.n, weight),
        )

    def probabilities(self, sigma: float) -> tuple[float, float]:
        """(p_A, p_B) at σ."""
        row = _features(np.array([sigma / self.problem.start]))[0]
        chosen, rival = float(ndtr(row @ self.chosen)), float(ndtr(row @ self.rival))
        return chosen, min(rival, 1.0 - chosen)

    def radius(self, sigma: float) -> float:
        """The radius that CERTIFY would return at σ if its votes came out as the curve says."""
        problem = self.problem
        bounds = problem.bound(
            _expected(problem.n, *self.probabilities(sigma), problem.bound.votes), 0, problem.alpha
        )
        return certificate_for(with_sigma(problem.noise, sigma)).radius(bounds)

    def best(self, sigmas: Array) -> tuple[float, float]:
        """(σ, radius) of the largest radius among ``sigmas``; of equal ones the smallest σ."""
        radii = [self.radius(float(sigma)) for sigma in sigmas]
        place = int(np.argmax(radii))
        return float(sigmas[place]), radii[place]


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
