"""CERTIFY and PREDICT as procedures: which votes they ask for, and what they make of them."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from smoothcert.bounds import top_two_p_value
from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Draw, Procedure
from smoothcert.sigma_search import Found
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.tally import ABSTAIN, Phase, Tally


def decide(x: ArrayLike, plan: CertifyPlan, selection: Tally, estimation: Tally) -> Certification:
    """CERTIFY (Cohen et al. 2019) from its two tallies; refuses votes that would be used twice."""
    for tally, phase in ((selection, Phase.SELECTION), (estimation, Phase.ESTIMATION)):
        if tally.stream.phase != phase:
            raise InvalidValueError(
                f"{phase.name.lower()} needs votes of its own stream, got {tally.stream.phase.name.lower()} votes: "
                "a class may not be certified by the votes that chose it"
            )
    if selection.stream.index != estimation.stream.index:
        raise InvalidValueError(
            f"votes of input {selection.stream.index} can't choose the class of input {estimation.stream.index}"
        )
    candidate = selection.top()
    bounds = plan.bounds_of(estimation, candidate)
    radius = plan.certificate.radius(bounds)
    region = plan.certificate.region(x, bounds)
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
    )


def certify_procedure(
    x: ArrayLike, plan: CertifyPlan, found: Found | None = None
) -> Procedure[Certification]:
    """Choose a class with n0 votes, bound it with n others; ``found``: the search that the plan's σ came from."""
    selection = yield Draw(Phase.SELECTION, plan.n0)
    estimation = yield Draw(Phase.ESTIMATION, plan.n)
    return replace(decide(x, plan, selection, estimation), search=found)


def predict_procedure(n: int, alpha: float) -> Procedure[Prediction]:
    """The class ahead in n votes, if the two-sided test tells it from the runner-up at level alpha."""
    tally = yield Draw(Phase.PREDICTION, n)
    candidate = max(range(len(tally.counts)), key=tally.counts.__getitem__)
    runner_up = max(count for c, count in enumerate(tally.counts) if c != candidate)
    p_value = top_two_p_value(tally.counts[candidate], runner_up)
    return Prediction(tally.stream.index, candidate if p_value <= alpha else ABSTAIN, p_value, tally)
