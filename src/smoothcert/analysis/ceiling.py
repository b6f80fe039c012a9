"""The largest radius that a run could have certified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smoothcert.bounds import BOUNDS
from smoothcert.certificates import largest_radius
from smoothcert.noise import NOISES
from smoothcert.runs import Run


def planned_ceiling(plan: Mapping[str, Any]) -> float | None:
    """The radius of a unanimous vote under a run's plan; None where the plan doesn't say."""
    noise, sigma, bound, n, alpha = (plan.get(key) for key in ("noise", "sigma", "bound", "n", "alpha"))
    if sigma is None or n is None or alpha is None or noise not in NOISES or bound not in BOUNDS:
        return None
    return largest_radius(NOISES[str(noise)](sigma), BOUNDS[str(bound)], n, alpha)  # type: ignore[call-arg]


def radius_ceiling(run: Run) -> float | None:
    """The same for what the run did: None also where σ differs by input."""
    if any(record.sigma != run.manifest.plan.get("sigma") for record in run.records):
        return None
    return planned_ceiling(run.manifest.plan)
