"""Certifying one input step by step, for callers who want to watch or to stop by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Execution, Job, Prepared
from smoothcert.sampling.procedures import one_draw
from smoothcert.smoothing.adaptive import CertifyState, stopping_procedure
from smoothcert.smoothing.plan import ANYTIME_BOUND, CertifyPlan
from smoothcert.smoothing.voting import engine_for
from smoothcert.tally import Phase


def certify_states(
    plan: CertifyPlan,
    prepared: Prepared,
    execution: Execution,
    *,
    x: NDArray[Any],
    index: int,
    label: int | None = None,
) -> Iterator[CertifyState]:
    """A state at every look; the last one has the certification, the same that CERTIFY would give."""
    seen: list[CertifyState] = []
    procedure = stopping_procedure(x, plan, label=label, watch=seen.append)
    engine = engine_for(plan, prepared, execution)
    drawn: dict[Phase, int] = {}
    draw, seconds = next(procedure), 0.0
    while True:
        (done,) = engine.run([Job(index, x, plan.noise, one_draw(draw), dict(drawn))])
        drawn[draw.phase] = drawn.get(draw.phase, 0) + draw.votes
        seconds += done.seconds
        try:
            draw = procedure.send(done.answer)
        except StopIteration as stop:
            answer = replace(stop.value, seconds=seconds)
            yield CertifyState(answer.estimation.n, answer.candidate, answer.radius, answer.bounds, answer)
            return
        if seen:
            yield seen.pop()


def check_streams(plan: CertifyPlan) -> None:
    """Refuse a plan whose bound doesn't hold at every look."""
    if not plan.confidence_bound.anytime:
        raise InvalidValueError(
            f"certify_stream shows votes as they come, and the {plan.bound} bound holds for a number of votes fixed "
            f"beforehand only: give the plan bound={ANYTIME_BOUND!r}"
        )
    if plan.search is not None:
        raise InvalidValueError("certify_stream is about the plan's own noise: leave the sigma search out")
    if plan.budget.pilot_votes:
        raise InvalidValueError(f"certify_stream looks at votes as they come: leave {plan.budget.text} out")
