"""CERTIFY with as many votes as an input needs: procedures around the rules of :mod:`smoothcert.stopping`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Draw, Procedure
from smoothcert.sigma_search import SearchResult
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import certify_procedure, decide
from smoothcert.stopping import FixedVotes, RadiusForecast, Share, VotingState, looks
from smoothcert.stopping.budgets import MINIMUM_VOTES
from smoothcert.stopping.looks import sizes
from smoothcert.tally import Phase, Stream, Tally

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


@dataclass(frozen=True)
class Piloted:
    """The votes that come before an allocation: they choose a class, and say what it may be worth.

    ``pilot`` is None where the class isn't the label: no vote more is spent on it.
    """

    selection: Tally
    pilot: Tally | None

    @property
    def chosen(self) -> int:
        """The class that the selection votes chose."""
        return self.selection.top()


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
            f"{plan.budget.text} spreads votes over a whole data set: use certify_dataset, or stop by pilot:1%"
        )


def forecast_for(plan: CertifyPlan) -> RadiusForecast:
    """Expected radii under a plan, for class 0 of made tallies."""
    return RadiusForecast(lambda tally: plan.certificate.radius(plan.confidence_bound(tally, 0, plan.alpha)))


def expected_votes(plan: CertifyPlan) -> float | None:
    """Votes an input gets on average, its pilot's included, over shares of the votes from 55 % to all for its class.

    None where no pilot chooses the votes of an input.
    """
    budget = plan.budget
    if budget.spreads or not (votes := budget.pilot_votes):
        return None
    forecast = forecast_for(plan)
    counts = [round(share * votes) for share in _SHARES]
    pilots = [Tally(Stream(0, 0, Phase.SELECTION), 0, votes, (count, votes - count)) for count in counts]
    chosen = [budget.choose(forecast, pilot, 0, plan.n, _BLOCK) for pilot in pilots]
    return votes + float(np.mean(chosen))


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
    return replace(decide(x, plan, selection, estimation), search=found, stopped=reason)


def _sequence(
    plan: CertifyPlan, selection: Tally, label: int | None, watch: Watch | None
) -> Generator[Draw, Tally, tuple[Tally, str]]:
    """Vote until a rule has a reason to stop, or the budget ends; the bound is valid at every look."""
    tally = _no_votes(selection)
    block = plan.numerics.layout().block
    for look in looks(plan.confidence_bound, plan.n, block):
        tally = tally + (yield Draw(Phase.ESTIMATION, look - tally.n))
        state = _state(plan, selection, tally, label)
        if watch is not None:
            bounds = plan.bounds_of(tally, state.chosen)
            watch(CertifyState(look, state.chosen, state.radius, bounds))
        reason = _first_reason(plan, state)
        if reason is not None and look < plan.most_votes:
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
    return replace(decide(x, plan, piloted.selection, estimation), stopped=reason)


def total_of(plan: CertifyPlan) -> int:
    """The votes that the plan spreads over a data set."""
    total = plan.budget.shared_votes
    if total is None:
        raise InvalidValueError("the plan spreads no total of votes: give it stop=('total:…',)")
    return total


def _first_reason(plan: CertifyPlan, state: VotingState) -> str | None:
    """Of the rules that have something to look at; estimation votes are seen after the first of them."""
    for rule in plan.stop_rules:
        if state.votes == 0 and rule.sees != "selection":
            continue
        reason = rule.reason(state)
        if reason is not None:
            return reason
    return None


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
