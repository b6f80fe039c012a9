"""The largest radius that a run could have certified."""

from __future__ import annotations

import numpy as np

from smoothcert.analysis.votes import most_votes
from smoothcert.bounds import BOUNDS
from smoothcert.certificates import largest_radius
from smoothcert.noise import DIAGONAL_NOISES, NOISES, Noise
from smoothcert.rounding import up
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement

_VERSIONS = 1e-11


def planned_ceiling(plan: PlanStatement) -> float | None:
    """The radius of a unanimous vote with the most votes that a run's plan allows; None where it doesn't say."""
    noise, bound, alpha = _noise_of(plan), plan.bound, plan.alpha
    if noise is None or plan.n is None or alpha is None or bound is None or bound not in BOUNDS:
        return None
    return largest_radius(noise, BOUNDS[bound], most_votes(plan), alpha)


def _noise_of(plan: PlanStatement) -> Noise | None:
    """The plan's noise as far as its radii go: of scales for each dimension the smallest decides."""
    if plan.noise is not None and plan.noise in NOISES and plan.sigma is not None:
        return NOISES[plan.noise](plan.sigma)
    if plan.noise is not None and plan.noise in DIAGONAL_NOISES and plan.least_sigma is not None:
        return DIAGONAL_NOISES[plan.noise](np.array([plan.least_sigma]))
    return None


def at_most(ceiling: float) -> float:
    """What no radius under the plan is above, whichever version of scipy rounded its last bits."""
    return up(ceiling, _VERSIONS)


def radius_ceiling(run: Run) -> float | None:
    """The same for what the run did: None also where σ may differ by input, whether or not it came to that.

    Where it follows the input by levels, none is above the plan's, which is the largest of them.
    """
    plan = run.manifest.plan
    differs = plan.sigma_search or (run.records.sigma != plan.sigma).any()
    return None if plan.sigma_levels is None and differs else planned_ceiling(plan)
