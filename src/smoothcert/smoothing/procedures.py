"""CERTIFY and PREDICT as procedures: which votes they ask for, and what they make of them.

CERTIFY takes n votes, or as many as an input needs by the rules of :mod:`smoothcert.smoothing.stopping`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds.anytime import anytime_mean_p_value, anytime_top_two_p_value
from smoothcert.bounds.base import ClassBounds
from smoothcert.bounds.fixed import top_two_p_value
from smoothcert.engine.schedule import Draw, Procedure
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.grid import Place
from smoothcert.rounding import down, up
from smoothcert.runs.side_files import Piloted, SearchResult
from smoothcert.smoothing.answers import Certification, Evidence, Prediction, with_evidence
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.stopping.base import FixedVotes
from smoothcert.smoothing.stopping.forecasts import RadiusForecast, Share, VotingState, checkpoints, sizes
from smoothcert.smoothing.stopping.rules import MINIMUM_VOTES
from smoothcert.tally import ABSTAIN, SOFT_UNIT, Phase, Stream, Tally

_FIRST_LOOK = 64  # votes; then whenever they have doubled


def decide(x: ArrayLike, plan: CertifyPlan, selection: Tally, estimation: Tally) -> Certification:
    """CERTIFY (Cohen et al. 2019) from its two tallies; refuses votes used twice, or not those that were asked for."""
    plan = plan.for_shape(np.shape(x))
    _check_votes(plan, selection, estimation)
    candidate = selection.top()
    bounds = plan.bounds_of(estimation, candidate)
    radius = plan.certificate.radius(bounds)
    place = placed(x, plan, radius)
    region = plan.certificate.region(place.center, bounds)
    return Certification(
        index=estimation.stream.index,
        predicted=candidate if radius > 0 else ABSTAIN,
        radius=radius,
        norm=plan.certificate.norm,
        region=region,
        sigma=plan.noise.sigma,
        evidence=Evidence(
            candidate=candidate,
            selection=selection,
            estimation=estimation,
            bounds=bounds,
            shift=place.shift,
            radius_off_grid=max(0.0, down(radius - place.between)),
            volume_radius=None if plan.certificate.ball else 0.0 if region is None else region.volume_radius,
        ),
    )


def placed(x: ArrayLike, plan: CertifyPlan, radius: float) -> Place:
    """Where votes on an input are, given the radius that they certify."""
    if not plan.on_grid or np.size(x) != plan.dimension:  # recertified votes know no input
        return Place(np.asarray(x, dtype=np.float64))
    return plan.coarsest_noise.place(x, plan.grid, radius)


def _check_votes(plan: CertifyPlan, selection: Tally, estimation: Tally) -> None:
    """Refuse votes of another stream, seed or input, or in another number than the plan allows."""
    for tally, phase in ((selection, Phase.SELECTION), (estimation, Phase.ESTIMATION)):
        if tally.stream.phase != phase:
            raise InvalidValueError(
                f"{phase.name.lower()} needs votes of its own stream, got {tally.stream.phase.name.lower()} votes: "
                "a class may not be certified by the votes that chose it"
            )
        if plan.seed is not None and tally.stream.seed != plan.seed:
            raise InvalidValueError(f"votes of seed {tally.stream.seed}, the plan's is {plan.seed}")
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
            f"votes over {len(selection.counts)} and {len(estimation.counts)} classes don't match"
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
    return with_evidence(decide(x, plan, selection, estimation), search=found)


def predict_procedure(n: int, alpha: float, error: float = 0.0) -> Procedure[Prediction]:
    """The class ahead in n votes, if a test tells it from every other at level alpha.

    ``error``: how far the sampler may be from the true noise. The laws of n votes then differ by at most n times that,
    which the p-value pays.
    """
    tally = yield Draw(Phase.PREDICTION, n)
    candidate = tally.top()
    p_value = min(1.0, _p_value(tally, candidate) + n * error)
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


def _rival(sums: Sequence[int], candidate: int) -> int:
    """The most that a class other than the candidate has."""
    return max(total for c, total in enumerate(sums) if c != candidate)


def _anytime_p_value(tally: Tally, candidate: int) -> float:
    counts, sums = tally.counts, tally.sums
    if sums is None:
        return anytime_top_two_p_value(counts[candidate], _rival(counts, candidate), len(counts))
    # Sums are of rounded-down votes: the rival's may be short by a unit for each.
    ahead = (sums[candidate] - _rival(sums, candidate) - tally.n) / SOFT_UNIT
    return anytime_mean_p_value(ahead, tally.n, len(counts))


def _p_value(tally: Tally, candidate: int) -> float:
    """Two-sided binomial test of the two classes ahead (Cohen et al. 2019, Proposition 1); of soft votes Hoeffding's.

    If class b has the largest true mean, another class is ahead of it by a mean of ``gap`` in n votes with probability
    at most exp(−n·gap²/2), since differences lie in [−1, 1]; there are (classes − 1) others.
    """
    counts, sums, n = tally.counts, tally.sums, tally.n
    if sums is None:
        return top_two_p_value(counts[candidate], _rival(counts, candidate))
    # Sums are of rounded-down votes: the rival's may be short by a unit for each.
    gap = (sums[candidate] - _rival(sums, candidate) - n) / (n * SOFT_UNIT)
    return 1.0 if gap <= 0 else up(min(1.0, (len(sums) - 1) * math.exp(-n * gap * gap / 2)), 1e-9)


_SHARES = (0.55, 0.65, 0.75, 0.85, 0.95, 0.99, 1.0)
_BLOCK = 64  # of votes: what an estimate rounds to


@dataclass(frozen=True)
class CertifyState:
    """Where a certification under way stands: after ``votes`` estimation votes, ``radius`` is certified for ``chosen``.

    ``certification`` is the final answer, in the last state only.
    """

    votes: int
    chosen: int
    radius: float
    bounds: ClassBounds
    certification: Certification | None = None


Watch = Callable[[CertifyState], None]


def stopping_procedure(
    x: ArrayLike,
    plan: CertifyPlan,
    *,
    found: SearchResult | None = None,
    label: int | None = None,
    forecast: RadiusForecast | None = None,
    watch: Watch | None = None,
) -> Procedure[Certification]:
    """CERTIFY by the plan's rules; without any it is :func:`certify_procedure`. The plan's numerics must be settled."""
    plan = plan.for_shape(np.shape(x))
    check_own_votes(plan)
    if not plan.stops and watch is None:
        return certify_procedure(x, plan, found)
    return _stopping(x, plan, found, label, forecast or forecast_for(plan), watch)


def check_own_votes(plan: CertifyPlan) -> None:
    """Refuse a budget that is for a data set and says nothing of one input."""
    if plan.budget.spreads:
        raise InvalidValueError(
            f"{plan.budget.text} is for a data set: use certify_dataset, or stop by pilot:1%"
        )


def forecast_for(plan: CertifyPlan) -> RadiusForecast:
    """Expected radii under a plan, for class 0 of made tallies."""
    return RadiusForecast(lambda tally: plan.certificate.radius(plan.confidence_bound(tally, 0, plan.alpha)))


def expected_votes(plan: CertifyPlan) -> float | None:
    """Votes an input gets on average, its pilot's included, over shares of the votes from 55 % to all for its class.

    None where no pilot chooses the votes of an input.
    """
    budget, forecast = plan.budget, forecast_for(plan)
    if budget.spreads or not (votes := budget.pilot_votes):
        return None
    counts = [round(share * votes) for share in _SHARES]
    pilots = [Tally(Stream(0, 0, Phase.SELECTION), 0, votes, (count, votes - count)) for count in counts]
    return votes + float(np.mean([budget.choose(forecast, pilot, 0, plan.n, _BLOCK) for pilot in pilots]))


def _stopping(
    x: ArrayLike,
    plan: CertifyPlan,
    found: SearchResult | None,
    label: int | None,
    forecast: RadiusForecast,
    watch: Watch | None,
) -> Procedure[Certification]:
    selection = yield Draw(Phase.SELECTION, plan.n0)
    start = _state(plan, selection, _no_votes(selection), label)
    reason = _first_reason(plan, start)
    if reason is not None:
        estimation = start.tally
    elif plan.sequential or watch is not None:
        estimation, reason = yield from _sequence(plan, selection, label, watch)
    else:
        n, reason = yield from _fixed_beforehand(plan, start, forecast)
        estimation = yield Draw(Phase.ESTIMATION, n)
    return with_evidence(decide(x, plan, selection, estimation), search=found, stopped=reason)


def _sequence(
    plan: CertifyPlan, selection: Tally, label: int | None, watch: Watch | None
) -> Generator[Draw, Tally, tuple[Tally, str]]:
    """Vote until a rule has a reason to stop, or the budget ends; the bound is valid at every checkpoint."""
    tally = _no_votes(selection)
    block = plan.numerics.layout().block
    for votes in checkpoints(plan.confidence_bound, plan.n, block):
        tally = tally + (yield Draw(Phase.ESTIMATION, votes - tally.n))
        state = _state(plan, selection, tally, label)
        if watch is not None:
            bounds = plan.bounds_of(tally, state.chosen)
            watch(CertifyState(votes, state.chosen, state.radius, bounds))
        reason = _first_reason(plan, state)
        if reason is not None and votes < plan.most_votes:
            return tally, reason
    return tally, FixedVotes.name


def _fixed_beforehand(
    plan: CertifyPlan, start: VotingState, forecast: RadiusForecast
) -> Generator[Draw, Tally, tuple[int, str]]:
    """The number of fresh votes, from votes that are thrown away or from none."""
    budget = plan.budget
    if not budget.pilot_votes:
        return plan.n, FixedVotes.name
    pilot = yield Draw(Phase.PILOT, budget.pilot_votes)
    n = budget.choose(forecast, pilot, start.chosen, plan.n, plan.numerics.layout().block)
    return n, FixedVotes.name if n == plan.n else f"{budget.name}: {n} votes were enough"


def piloting_procedure(plan: CertifyPlan, label: int) -> Procedure[Piloted]:
    """The votes that an allocation is made from: selection, and a pilot where the class is the label."""
    selection = yield Draw(Phase.SELECTION, plan.n0)
    if selection.top() != label:
        return Piloted(selection, None)
    return Piloted(selection, (yield Draw(Phase.PILOT, plan.budget.pilot_votes)))


def shares_of(plan: CertifyPlan, piloted: Mapping[int, Piloted]) -> list[Share]:
    """What votes would bring each input whose pilot was cast; the others get none."""
    forecast = forecast_for(plan)
    choices = sizes(MINIMUM_VOTES, plan.most_votes, plan.numerics.layout().block, growth=1.3)
    return [
        Share(index, choices, [forecast.expected(one.pilot, one.chosen, n) for n in choices])
        for index, one in sorted(piloted.items())
        if one.pilot is not None
    ]


def allocated_procedure(
    x: ArrayLike, plan: CertifyPlan, piloted: Piloted, label: int, n: int
) -> Procedure[Certification]:
    """n fresh votes for the class that was chosen before, n being fixed by the allocation."""
    plan = plan.for_shape(np.shape(x))
    if n:
        estimation = yield Draw(Phase.ESTIMATION, n)
        reason = f"allocated: {n} votes"
    else:
        estimation = _no_votes(piloted.selection)
        wrong = piloted.pilot is None
        reason = f"wrong: candidate {piloted.chosen}, label {label}" if wrong else "allocated: no votes"
    return with_evidence(decide(x, plan, piloted.selection, estimation), stopped=reason)


def _first_reason(plan: CertifyPlan, state: VotingState) -> str | None:
    """Of the rules that have something to look at; estimation votes are seen after the first of them."""
    seeing = (rule for rule in plan.stop_rules if state.votes or rule.sees == "selection")
    return next((reason for rule in seeing if (reason := rule.reason(state)) is not None), None)


def _state(plan: CertifyPlan, selection: Tally, tally: Tally, label: int | None) -> VotingState:
    chosen = selection.top()

    def radius_of(votes: Tally) -> float:
        return plan.certificate.radius(plan.bounds_of(votes, chosen))

    return VotingState(chosen, label, plan.most_votes, tally, radius_of(tally), radius_of)


def _no_votes(selection: Tally) -> Tally:
    """The estimation stream before its first vote."""
    stream = Stream(selection.stream.seed, selection.stream.index, Phase.ESTIMATION)
    nothing = (0,) * len(selection.counts)
    soft = None if selection.sums is None else nothing
    return Tally(stream, 0, 0, nothing, soft, soft)
