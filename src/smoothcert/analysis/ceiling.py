"""The largest radius that a run could have certified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from smoothcert.analysis.votes import most_votes
from smoothcert.bounds import BOUNDS
from smoothcert.certificates import largest_radius
from smoothcert.noise import DIAGONAL_NOISES, NOISES, Noise
from smoothcert.rounding import up
from smoothcert.runs import Run

_VERSIONS = 1e-11


def planned_ceiling(plan: Mapping[str, Any]) -> float | None:
    """The radius of a unanimous vote with the most votes that a run's plan allows; None where it doesn't say."""
    noise, bound, alpha = _noise_of(plan), plan.get("bound"), plan.get("alpha")
    if noise is None or plan.get("n") is None or alpha is None or bound not in BOUNDS:
        return None
    return largest_radius(noise, BOUNDS[str(bound)], most_votes(plan), alpha)


def _noise_of(plan: Mapping[str, Any]) -> Noise | None:
    """The plan's noise as far as its radii go: of scales for each dimension the smallest decides."""
    name, sigma, least = (plan.get(key) for key in ("noise", "sigma", "least_sigma"))
    if name in NOISES and sigma is not None:
        return NOISES[str(name)](sigma)
    if name in DIAGONAL_NOISES and least is not None:
        return DIAGONAL_NOISES[str(name)](np.array([least]))
    return None


def at_most(ceiling: float) -> float:
    """What no radius under the plan is above, whichever version of scipy rounded its last bits."""
    return up(ceiling, _VERSIONS)


def radius_ceiling(run: Run) -> float | None:
    """The same for what the run did: None also where σ may differ by input, whether or not it came to that."""
    plan = run.manifest.plan
    if plan.get("sigma_search") or any(record.sigma != plan.get("sigma") for record in run.records):
        return None
    return planned_ceiling(plan)
