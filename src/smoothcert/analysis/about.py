"""What a run's figures are about: which data set and split, and whether σ is one for all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.noise import DIAGONAL_NOISES
from smoothcert.plain_text import shown_name
from smoothcert.runs import Run
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_levels.statement import class_alpha

Per = Literal["input", "coordinate", "level"]
"""What has a σ of its own. By levels σ is one function of the input, and the same classifier everywhere."""


def dataset_of(run: Run) -> str | None:
    """The data set the run states; None for a log imported without one."""
    name = run.manifest.data.name
    return shown_name(name) if isinstance(name, str) and name else None


def split_of(run: Run) -> str | None:
    """The split of the data set, where the run states it; logs don't."""
    split = run.manifest.origin.split
    return shown_name(split) if split else None


def data_in_words(dataset: str | None, split: str | None) -> str | None:
    """``digits, test split``; None where neither is known."""
    return ", ".join(part for part in (dataset, None if split is None else f"{split} split") if part) or None


def search_of(run: Run) -> str | None:
    """The search that chose each input's σ, by name; None where none did."""
    search = run.manifest.plan.sigma_search
    return shown_name(search) if search else None


def sigma_per(run: Run) -> Per | None:
    """Whether each input or each coordinate has a σ of its own; None where all have the same.

    A log may have a σ for each input without saying how it was found.
    """
    if levels_of(run) is not None:
        return "level"
    if search_of(run) is not None or len(set(run.records.sigma.tolist())) > 1:
        return "input"
    return "coordinate" if run.manifest.plan.noise in DIAGONAL_NOISES else None


def levels_of(run: Run) -> tuple[float, ...] | None:
    """The σ among which a chooser gives each point its own, ascending; None where there are no such levels."""
    levels = run.manifest.plan.sigma_levels
    return None if levels is None else tuple(map(float, levels))


def chooser_of(run: Run) -> str | None:
    """What the chooser among levels is called: ``constant:1`` where it is that; None where there are no levels."""
    chooser = run.manifest.plan.chooser
    if levels_of(run) is None or chooser is None:
        return None
    if "constant" in chooser:
        return f"constant:{shown_name(str(chooser['constant']))}"
    return shown_name(str(chooser.get("name") or "unnamed"))


def alpha_of_class(plan: PlanStatement) -> float:
    """The α that the bound of an input's class has: the plan's, less a chooser's part."""
    alpha = plan.known(PlanStatement.alpha)
    if plan.sigma_levels is None or plan.chooser is None:
        return alpha
    return class_alpha(alpha, "constant" in plan.chooser)


def own_sigmas(sigmas: NDArray[np.float64] | Sequence[float]) -> str | None:
    """``0.05 to 0.31, median 0.12``, for runs and logs that have a σ for each input; None where all have the same."""
    if len(set(map(float, sigmas))) <= 1:
        return None
    return f"{np.min(sigmas):.4g} to {np.max(sigmas):.4g}, median {np.median(sigmas):.4g}"


def sigma_mark(search: str | None, per: Per | None, levels: Sequence[float] | None = None) -> str:
    """What stands behind a σ that isn't simply the noise's; else nothing.

    `` (ladder search)``, `` (per input)``, or `` (largest of 3 levels)``.
    """
    if levels is not None:
        return f" (largest of {len(levels)} levels)"
    if search is not None:
        return f" ({search} search)"
    return "" if per is None else f" (per {per})"
