"""Metrics: the numbers that papers report of a run, as the papers define them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, RunError, check_count, check_probability
from smoothcert.runs import Record, Run


@dataclass(frozen=True)
class RunSummary:
    """One row of a table. ``accuracy`` holds the certified accuracy (0 to 1) at each radius asked for.

    What the run's manifest doesn't state is None.
    """

    run: str
    sigma: float | None
    bound: str | None
    n: int | None
    alpha: float | None
    norm: str
    inputs: int
    acr: float
    abstained: float
    accuracy: tuple[float, ...]


def summarise(run: Run, radii: Sequence[float]) -> RunSummary:
    """The run's figures, with its certified accuracy at each of ``radii``."""
    if not run.records:
        raise RunError(f"{run.path}: no input has been certified yet; run the certification first")
    plan = run.manifest.plan
    return RunSummary(
        run=run.name,
        sigma=plan.get("sigma"),
        bound=plan.get("bound"),
        n=plan.get("n"),
        alpha=plan.get("alpha"),
        norm=stated_norm(run),
        inputs=len(run.records),
        acr=average_certified_radius(run.records),
        abstained=abstention_rate(run.records),
        accuracy=tuple(certified_accuracy(run.records, radii).tolist()),
    )


def stated_norm(run: Run) -> str:
    """The norm of the run's radii; a run that states none has no radii to compare."""
    norm = run.manifest.plan.get("norm")
    if not isinstance(norm, str):
        raise RunError(f"{run.path} states no norm for its radii: it is no certification; name one that is")
    return norm


def check_same_norm(norms: Sequence[tuple[str, str]]) -> None:
    """Refuse runs (given as name and norm) whose radii can't be compared."""
    if len({norm for _, norm in norms}) > 1:
        named = ", ".join(f"{name} ({norm})" for name, norm in norms)
        raise InvalidValueError(f"radii in different norms don't compare: {named}; show one norm at a time")


def certified_accuracy(records: Sequence[Record], radii: Sequence[float]) -> NDArray[np.float64]:
    """For each r of ``radii`` the fraction of all inputs that are correct, not abstained and have radius ≥ r."""
    _check_some(records)
    certified = correct_radii(records)
    below = np.searchsorted(certified, np.asarray(radii, dtype=np.float64), side="left")
    return np.asarray((certified.size - below) / len(records), dtype=np.float64)


def smoothed_accuracy(records: Sequence[Record]) -> float:
    """The fraction of all inputs that are correct and not abstained: certified accuracy at radius 0."""
    return float(certified_accuracy(records, [0.0])[0])


def average_certified_radius(records: Sequence[Record]) -> float:
    """ACR: the mean over all inputs of the radius, counted as 0 where the answer is wrong or missing."""
    _check_some(records)
    return math.fsum(correct_radii(records)) / len(records)


def abstention_rate(records: Sequence[Record]) -> float:
    """The fraction of all inputs that were not decided."""
    _check_some(records)
    return sum(record.abstained for record in records) / len(records)


def correct_radii(records: Sequence[Record]) -> NDArray[np.float64]:
    """The radii of the correct answers, in ascending order."""
    return np.sort(np.array([record.radius for record in records if record.correct], dtype=np.float64))


def guaranteed_fraction(certified_fraction: float, m: int, alpha: float, rho: float) -> float:
    """A lower bound of a test set's true certified accuracy, from the fraction that CERTIFY found.

    Promise: let each of the ``m`` inputs be certified from its own independent votes, at a level that fails
    with probability at most ``alpha``. Then, with probability at least 1−``rho`` over all those votes, the
    fraction of these very m inputs that the smoothed classifier gets right throughout the ball of radius r is
    at least the number returned, where ``certified_fraction`` is their certified accuracy at r. It holds for
    one r fixed beforehand, and says nothing of inputs outside the test set.

    The number of false certificates is at most binomial(m, α), and Bernstein's inequality bounds its mean by
    α + √(2 α(1−α) ln(1/ρ) / m) + ln(1/ρ) / (3m); without the 2 that the statement is sometimes quoted
    without, it fails more often than ρ (already for m = 10 000 and α = ρ = 0.001).
    """
    if not 0 <= certified_fraction <= 1:
        raise InvalidValueError(f"certified_fraction must lie between 0 and 1, got {certified_fraction}")
    check_count("m", m)
    check_probability("alpha", alpha)
    check_probability("rho", rho)
    log_term = -math.log(rho) / m
    return max(0.0, certified_fraction - alpha - math.sqrt(2 * alpha * (1 - alpha) * log_term) - log_term / 3)


def _check_some(records: Sequence[Record]) -> None:
    if not records:
        raise RunError("no input has been certified yet, so there is nothing to average")
