"""CERTIFY and PREDICT as procedures: which votes they ask for, and what they make of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds import top_two_p_value
from smoothcert.bounds.anytime import anytime_mean_p_value, anytime_top_two_p_value
from smoothcert.errors import InvalidValueError
from smoothcert.noise import on_grid
from smoothcert.rounding import down, up
from smoothcert.sampling import Draw, Procedure
from smoothcert.sigma_search import SearchResult
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import ABSTAIN, SOFT_UNIT, Phase, Tally

_FIRST_LOOK = 64  # votes; then whenever they have doubled


def decide(x: ArrayLike, plan: CertifyPlan, selection: Tally, estimation: Tally) -> Certification:
    """CERTIFY (Cohen et al. 2019) from its two tallies; refuses votes used twice, or not those that were asked for."""
    plan = plan.for_shape(np.shape(x))
    _check_votes(plan, selection, estimation)
    candidate = selection.top()
    bounds = plan.bounds_of(estimation, candidate)
    radius = plan.certificate.radius(bounds)
    center, shift, between = placed(x, plan, radius)
    region = plan.certificate.region(center, bounds)
    return Certification(
        index=estimation.stream.index,
        predicted=candidate if radius > 0 else ABSTAIN,
        radius=radius,
        norm=plan.certificate.norm,
        region=region,
        bounds=bounds,
        candidate=candidate,
        selection=selection,
        estimation=estimation,
        sigma=plan.noise.sigma,
        volume_radius=None if plan.certificate.ball else 0.0 if region is None else region.volume_radius,
        shift=shift,
        radius_off_grid=max(0.0, down(radius - between)),
    )


def placed(x: ArrayLike, plan: CertifyPlan, radius: float) -> tuple[NDArray[np.float64], float, float]:
    """The point that votes are about, the input's shift, and how far any input's own point can be from it beside."""
    if not plan.on_grid or np.size(x) != plan.dimension:  # recertified votes know no input
        return np.asarray(x, dtype=np.float64), 0.0, 0.0
    noise, norm = on_grid(plan.coarsest_noise, plan.grid, np.shape(x)), plan.certificate.norm
    point = noise.point(x)
    between = point.distance[norm] + noise.half_diagonal(norm, np.abs(point.values) + radius)
    return point.values, point.shift[norm], between


def _check_votes(plan: CertifyPlan, selection: Tally, estimation: Tally) -> None:
    """Refuse votes of another stream, seed or input, or in another number than the plan allows."""
    for tally, phase in ((selection, Phase.SELECTION), (estimation, Phase.ESTIMATION)):
        if tally.stream.phase != phase:
            raise InvalidValueError(
                f"{phase.name.lower()} needs votes of its own stream, got {tally.stream.phase.name.lower()} votes: "
                "a class may not be certified by the votes that chose it"
            )
        if plan.seed is not None and tally.stream.seed != plan.seed:
            raise InvalidValueError(
                f"votes of seed {tally.stream.seed} don't belong to a plan of seed {plan.seed}"
            )
        if tally.start != 0:
            raise InvalidValueError(
                f"{phase.name.lower()} needs every vote of its stream from the first, got votes {tally.start} to "
                f"{tally.stop}"
            )
    if selection.stream.index != estimation.stream.index:
        raise InvalidValueError(
            f"votes of input {selection.stream.index} can't choose the class of input {estimation.stream.index}"
        )
    if selection.stream.seed != estimation.stream.seed:
        raise InvalidValueError(
            f"selection and estimation votes have the seeds {selection.stream.seed} and {estimation.stream.seed}"
        )
    if len(selection.counts) != len(estimation.counts):
        raise InvalidValueError(
            f"votes over {len(selection.counts)} classes can't choose among {len(estimation.counts)}"
        )
    if selection.n != plan.n0:
        raise InvalidValueError(f"the plan chooses a class by n0 = {plan.n0} votes, got {selection.n}")
    if not plan.allows_votes(estimation.n):
        raise InvalidValueError(f"the plan bounds a class by n = {plan.n} votes, got {estimation.n}")


def certify_procedure(
    x: ArrayLike, plan: CertifyPlan, found: SearchResult | None = None
) -> Procedure[Certification]:
    """Choose a class with n0 votes, bound it with n others; ``found``: the search that the plan's σ came from."""
    plan = plan.for_shape(np.shape(x))
    selection = yield Draw(Phase.SELECTION, plan.n0)
    estimation = yield Draw(Phase.ESTIMATION, plan.n)
    return replace(decide(x, plan, selection, estimation), search=found)


def predict_procedure(n: int, alpha: float, error: float = 0.0) -> Procedure[Prediction]:
    """The class ahead in n votes, if a test tells it from every other at level alpha.

    ``error``: how far the sampler may be from the true noise. The laws of n votes then differ by at most n times that,
    which the p-value pays.
    """
    tally = yield Draw(Phase.PREDICTION, n)
    candidate = tally.top()
    p_value = min(1.0, (_hard_p_value if tally.sums is None else _soft_p_value)(tally, candidate) + n * error)
    return Prediction(tally.stream.index, candidate if p_value <= alpha else ABSTAIN, p_value, tally)


def predict_until_decided(most: int, alpha: float, error: float = 0.0) -> Procedure[Prediction]:
    """The class ahead as soon as it is told from every other at level alpha, by at most so many votes.

    The test holds at every number of votes at once, so that looking often costs nothing. ``error``: as above, of all
    votes that there may be.
    """
    tally: Tally | None = None
    while True:
        drawn = 0 if tally is None else tally.n
        more = yield Draw(Phase.PREDICTION, min(max(_FIRST_LOOK, drawn), most - drawn))
        tally = more if tally is None else tally + more
        candidate = tally.top()
        p_value = min(1.0, _anytime_p_value(tally, candidate) + most * error)
        if p_value <= alpha or tally.n >= most:
            predicted = candidate if p_value <= alpha else ABSTAIN
            return Prediction(tally.stream.index, predicted, p_value, tally)


def _anytime_p_value(tally: Tally, candidate: int) -> float:
    classes = len(tally.counts)
    if tally.sums is None:
        runner_up = max(count for c, count in enumerate(tally.counts) if c != candidate)
        return anytime_top_two_p_value(tally.counts[candidate], runner_up, classes)
    rival = max(total for c, total in enumerate(tally.sums) if c != candidate)
    # Sums are of rounded-down votes: the rival's may be short by a unit for each.
    ahead = (tally.sums[candidate] - rival - tally.n) / SOFT_UNIT
    return anytime_mean_p_value(ahead, tally.n, classes)


def _hard_p_value(tally: Tally, candidate: int) -> float:
    """Two-sided binomial test of the two classes ahead (Cohen et al. 2019, Proposition 1)."""
    runner_up = max(count for c, count in enumerate(tally.counts) if c != candidate)
    return top_two_p_value(tally.counts[candidate], runner_up)


def _soft_p_value(tally: Tally, candidate: int) -> float:
    """Hoeffding's test that the candidate's mean probability is the largest.

    If class b has the largest true mean, another class is ahead of it by a mean of ``gap`` in n votes with probability
    at most exp(−n·gap²/2), since differences lie in [−1, 1]; there are (classes − 1) others.
    """
    assert tally.sums is not None
    runner_up = max(total for c, total in enumerate(tally.sums) if c != candidate)
    # Sums are of rounded-down votes: the rival's may be short by a unit for each.
    gap = (tally.sums[candidate] - runner_up - tally.n) / (tally.n * SOFT_UNIT)
    if gap <= 0:
        return 1.0
    return up(min(1.0, (len(tally.sums) - 1) * math.exp(-tally.n * gap * gap / 2)), 1e-9)
