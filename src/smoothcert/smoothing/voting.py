"""The engine that casts a plan's votes."""

from __future__ import annotations

from smoothcert.bounds import VoteKind
from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Engine, Execution, Prepared
from smoothcert.smoothing.plan import CertifyPlan


def engine_for(plan: CertifyPlan, prepared: Prepared, votes: VoteKind, execution: Execution) -> Engine:
    """An engine with the plan's streams and grid; refuses a plan whose votes can't be cast any more."""
    if not plan.on_grid:
        raise InvalidValueError(
            f"the plan is of stream version {plan.stream}, which drew noise in floating point: such votes aren't cast "
            "any more. Certify into a new directory"
        )
    return Engine(prepared, votes, plan.known_seed, execution, plan.grid)
