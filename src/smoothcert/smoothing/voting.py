"""What a plan asks of the rooms below: the engine that casts its votes, and each input's own σ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.sampling import BaseClassifier, Engine, Execution, Prepared
from smoothcert.sigma_search import Problem, SearchResult, search_each
from smoothcert.smoothing.plan import CertifyPlan


def engine_for(plan: CertifyPlan, prepared: Prepared, execution: Execution) -> Engine:
    """An engine with the plan's streams and grid; refuses a plan whose votes can't be cast any more."""
    if not plan.on_grid:
        raise InvalidValueError(
            f"the plan is of stream version {plan.stream}, which drew noise in floating point: such votes aren't cast "
            "any more. Certify into a new directory"
        )
    return Engine(prepared, plan.confidence_bound.votes, plan.known_seed, execution, plan.grid)


def with_own_plans(
    plan: CertifyPlan,
    base: BaseClassifier,
    prepared: Prepared,
    execution: Execution,
    inputs: Iterator[tuple[int, NDArray[Any]]],
    on_evaluations: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, NDArray[Any], CertifyPlan, SearchResult | None]]:
    """Each input with the plan at its own σ, found before any of its certifying votes is drawn."""
    if plan.search is None:
        yield from ((index, x, plan, None) for index, x in inputs)
        return
    problem = Problem(
        base=base,
        prepared=prepared,
        noise=plan.noise,
        bound=plan.confidence_bound,
        n=plan.n,
        alpha=plan.alpha,
        seed=plan.known_seed,
        execution=execution,
        grid=plan.grid,
    )
    for index, x, found in search_each(plan.search, problem, inputs, on_evaluations):
        own = replace(plan, noise=found.noise_like(plan.noise), search=None)
        yield index, x, own, found.drawn(own.noise)
