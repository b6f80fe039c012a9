"""CERTIFY with as many votes as an input needs: procedures around the rules of :mod:`smoothcert.stopping`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Draw, Procedure
from smoothcert.sigma_search import Found
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import certify_procedure, decide
from smoothcert.stopping import Moment, Outlook, Pilot, Share, Total, looks
from smoothcert.stopping.base import BUDGET
from smoothcert.stopping.outlook import sizes
from smoothcert.stopping.stages import LEAST_VOTES
from smoothcert.tally import Phase, Stream, Tally


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
    found: Found | None = None,
    label: int | None = None,
    outlook: Outlook | None = None,
    watch: Watch | None = None,
) -> Procedure[Certification]:
    """CERTIFY by the plan's rules; without any it is :func:`certify_procedure`. The plan's numerics must be settled."""
    plan = plan.for_shape(np.shape(x))
    if not plan.rules and watch is None:
        return certify_procedure(x, plan, found)
    return _stopping(x, plan, found, label, outlook or outlook_for(plan), watch)


def outlook_for(plan: CertifyPlan) -> Outlook:
    """Expected radii under a plan, for class 0 of made tallies."""
    return Outlook(lambda tally: plan.certificate.radius(plan.rule(tally, 0, plan.alpha)))


def _stopping(
    x: ArrayLike,
    plan: CertifyPlan,
    found: Found | None,
    label: int | None,
    outlook: Outlook,
    watch: Watch | None,
) -> Procedure[Certification]:
    selection = yield Draw(Phase.SELECTION, plan.n0)
    start = _moment(plan, selection, _no_votes(selection), label)
    reason = _first_reason(plan, start)
    if reason is not None:
        estimation = start.tally
    elif plan.sequential or watch is not None:
        estimation, reason = yield from _sequence(plan, selection, label, watch)
    else:
        n, reason = yield from _fixed_beforehand(plan, start, outlook)
        estimation = yield Draw(Phase.ESTIMATION, n)
    return replace(decide(x, plan, selection, estimation), search=found, stopped=reason)


def _sequence(
    plan: CertifyPlan, selection: Tally, label: int | None, watch: Watch | None
) -> Generator[Draw, Tally, tuple[Tally, str]]:
    """Vote until a rule has a reason to stop, or the budget ends; the bound is valid at every look."""
    tally = _no_votes(selection)
    block = plan.numerics.layout().block
    for look in looks(plan.rule, plan.n, block):
        tally = tally + (yield Draw(Phase.ESTIMATION, look - tally.n))
        moment = _moment(plan, selection, tally, label)
        if watch is not None:
            watch(CertifyState(look, moment.chosen, moment.radius, plan.bounds_of(tally, moment.chosen)))
        reason = _first_reason(plan, moment)
        if reason is not None and look < plan.most_votes:
            return tally, reason
    return tally, BUDGET


def _fixed_beforehand(
    plan: CertifyPlan, start: Moment, outlook: Outlook
) -> Generator[Draw, Tally, tuple[int, str]]:
    """The number of fresh votes, from votes that are thrown away or from none."""
    pilot_rule = next((rule for rule in plan.rules if isinstance(rule, Pilot)), None)
    if pilot_rule is None:
        return plan.n, BUDGET
    pilot = yield Draw(Phase.PILOT, pilot_rule.votes)
    n = pilot_rule.choose(outlook, pilot, start.chosen, plan.n, plan.numerics.layout().block)
    return n, BUDGET if n == plan.n else f"{pilot_rule.name}: {n} votes were enough"


def piloting_procedure(plan: CertifyPlan, label: int) -> Procedure[Piloted]:
    """The votes that an allocation is made from: selection, and a pilot where the class is the label."""
    total = total_of(plan)
    selection = yield Draw(Phase.SELECTION, plan.n0)
    if selection.top() != label:
        return Piloted(selection, None)
    return Piloted(selection, (yield Draw(Phase.PILOT, total.votes)))


def shares_of(plan: CertifyPlan, piloted: Mapping[int, Piloted]) -> list[Share]:
    """What votes would bring each input whose pilot was cast; the others get none."""
    outlook = outlook_for(plan)
    choices = sizes(LEAST_VOTES, plan.most_votes, plan.numerics.layout().block, growth=1.3)
    return [
        Share(index, choices, [outlook.expected(one.pilot, one.chosen, n) for n in choices])
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


def total_of(plan: CertifyPlan) -> Total:
    """The plan's rule that spreads a total over a data set."""
    for rule in plan.rules:
        if isinstance(rule, Total):
            return rule
    raise InvalidValueError("the plan spreads no total of votes: give it stop=('total:…',)")


def _first_reason(plan: CertifyPlan, moment: Moment) -> str | None:
    """Of the rules that have something to look at; estimation votes are seen after the first of them."""
    for rule in plan.rules:
        if moment.votes == 0 and rule.sees != "selection":
            continue
        reason = rule.reason(moment)
        if reason is not None:
            return reason
    return None


def _moment(plan: CertifyPlan, selection: Tally, tally: Tally, label: int | None) -> Moment:
    chosen = selection.top()

    def radius_of(votes: Tally) -> float:
        return plan.certificate.radius(plan.bounds_of(votes, chosen))

    return Moment(chosen, label, plan.most_votes, tally, radius_of(tally), radius_of)


def _no_votes(selection: Tally) -> Tally:
    """The estimation stream before its first vote."""
    stream = Stream(selection.stream.seed, selection.stream.index, Phase.ESTIMATION)
    nothing = (0,) * len(selection.counts)
    soft = None if selection.sums is None else nothing
    return Tally(stream, 0, 0, nothing, soft, soft)
