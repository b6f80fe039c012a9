"""Metrics: the numbers that papers report of a run, as the papers define them.

Three accuracies are easily confused: :func:`base_accuracy` (the model without noise), :func:`noisy_accuracy` (the
model under noise) and :func:`smoothed_accuracy` (the smoothed classifier, the only one that certificates are about).
What a run can't give, such as the votes of an imported log, is None.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.facts import (
    Per,
    chooser_of,
    dataset_of,
    levels_of,
    most_votes,
    search_of,
    sigma_mark,
    sigma_per,
    split_of,
    stops_of,
)
from smoothcert.analysis.intervals import rate_interval
from smoothcert.errors import InvalidValueError, check_count, check_probability
from smoothcert.runs.records import UNKNOWN, Floats, Ints, Records, Rows, check_some, step_counts
from smoothcert.runs.records import average_certified_radius as average_certified_radius
from smoothcert.runs.records import certified_accuracy as certified_accuracy
from smoothcert.runs.records import correct_radii as correct_radii
from smoothcert.runs.run import Run
from smoothcert.runs.statement import DataStatement

_LEAST_SECONDS = 1e-9
Curve: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What figures rest on; what the run's manifest doesn't state is None."""

    sigma: float | None
    bound: str | None
    n: int | None
    alpha: float | None
    norm: str
    inputs: int
    most_votes: int | None
    """The most votes an input could get, where voting may end early; None where each has n."""
    dataset: str | None
    split: str | None
    sigma_search: str | None
    """The search that chose each input's σ; ``sigma`` is then where it started."""
    sigma_per: Per | None
    """What has a σ of its own; ``sigma`` is then the mean that the plan states, or the largest of the levels."""
    sigma_levels: tuple[float, ...] | None
    """The σ among which a chooser gives each point its own: one classifier."""
    chooser: str | None
    """What that chooser is called."""
    planned: int | None
    """How many inputs the run was asked for; None where it doesn't say."""
    complete: bool
    """Whether the run is known to hold all inputs that it was asked for."""

    @classmethod
    def stated_by(cls, run: Run, /, **figures: Any) -> Self:
        """What the run states, with these figures."""
        plan = run.manifest.plan
        facts = {
            **{name: plan.value(name) for name in ("sigma", "bound", "n", "alpha")},
            "norm": run.norm,
            "inputs": len(run.records),
            "most_votes": most_votes(plan) if stops_of(plan) else None,
            "dataset": dataset_of(run),
            "split": split_of(run),
            "sigma_search": search_of(run),
            "sigma_per": sigma_per(run),
            "sigma_levels": levels_of(run),
            "chooser": chooser_of(run),
            "planned": None if run.planned is None else len(run.planned),
            "complete": run.complete,
        }
        return cls(**(facts | figures))

    @property
    def sigma_mark(self) -> str:
        """What stands behind a σ that isn't simply the noise's."""
        return sigma_mark(self.sigma_search, self.sigma_per, self.sigma_levels)


@dataclass(frozen=True, kw_only=True)
class RunSummary(RunFacts):
    """One row of a table. ``accuracy`` holds the certified accuracy (0 to 1) at each radius asked for."""

    run: str
    acr: float
    abstained: float
    accuracy: tuple[float, ...]


def summarise(run: Run, radii: Sequence[float]) -> RunSummary:
    """The run's figures, with its certified accuracy at each of ``radii``."""
    run.check_begun()
    return RunSummary.stated_by(
        run,
        run=run.name,
        acr=average_certified_radius(run.records),
        abstained=abstention_rate(run.records),
        accuracy=tuple(certified_accuracy(run.records, radii).tolist()),
    )


def check_same_norm(norms: Sequence[tuple[str, str]]) -> None:
    """Refuse runs (given as name and norm) whose radii can't be compared."""
    if len({norm for _, norm in norms}) > 1:
        named = ", ".join(f"{name} ({norm})" for name, norm in norms)
        raise InvalidValueError(f"radii in different norms don't compare: {named}; show one norm at a time")


def check_same_data(first: Run, second: Run) -> list[str]:
    """Refuse runs on different data; returns in words what couldn't be checked.

    Data are the same if their SHA-256 are; where a run states none (imported logs), names are compared where both are
    stated, and labels always.
    """
    data = first.manifest.data, second.manifest.data
    known = [
        field
        for field in (DataStatement.sha256, DataStatement.name)
        if all(stated.value(field) for stated in data)
    ]
    if known and data[0].value(known[0]) != data[1].value(known[0]):
        raise InvalidValueError(
            f"{first.path} is on {_named(data[0])} and {second.path} on {_named(data[1])}: runs on different data "
            "don't compare; certify both on the same data"
        )
    check_same_labels([first, second])
    if DataStatement.sha256 in known:
        return []
    return [
        f"{first.name} and {second.name}: no hash of the data in both, so only labels{' and names' if known else ''} "
        "were checked"
    ]


def check_same_labels(runs: Sequence[Run]) -> None:
    """Refuse runs that give an input different labels: they can't be of one data set."""
    labels: dict[int, tuple[int, Run]] = {}
    for run in runs:
        for index, label in zip(run.records.index.tolist(), run.records.label.tolist()):
            first, where = labels.setdefault(index, (label, run))
            if label != first:
                name = dataset_of(run)
                unnamed = name is None or dataset_of(where) is None
                remedy = ", or import logs with --dataset NAME" if unnamed else f", both are called {name}"
                raise InvalidValueError(
                    f"input {index} has label {first} in {where.path} and {label} in {run.path}: they are of different "
                    f"data sets; take runs of one{remedy}"
                )


def check_same_indices(runs: Sequence[Run]) -> None:
    """Refuse runs that certify different inputs of their data set."""
    first, *rest = runs
    for run in rest:
        if not np.array_equal(run.records.index, first.records.index):
            raise InvalidValueError(
                f"{run.path} and {first.path} certify different inputs ({len(run.records)} and "
                f"{len(first.records)}): their accuracies don't compare; certify the same inputs"
            )


def certified_count(records: Rows, radius: float) -> int:
    """How many inputs are right and certified at ``radius`` or more."""
    columns = Records.of(records)
    return int(np.count_nonzero(columns.correct & (columns.radius >= radius)))


def smoothed_accuracy(records: Rows) -> float:
    """The fraction of all inputs on which the *smoothed* classifier was found right: certified accuracy at radius 0.

    An abstention is not right.
    """
    return float(certified_accuracy(records, [0.0])[0])


def base_accuracy(records: Rows) -> float | None:
    """The fraction of inputs that the *base* classifier gets right without noise; None unless all state its class.

    No certificate is about the base classifier.
    """
    check_some(records)
    columns = Records.of(records)
    if (columns.base == UNKNOWN).any():
        return None
    return int(np.count_nonzero(columns.base == columns.label)) / len(columns)


def noisy_accuracy(records: Rows) -> float | None:
    """The *base* classifier's accuracy under noise: the share of estimation votes for the label; None without votes.

    Where voting could end early, the numbers of those depend on what they are: then the selection votes are taken.
    """
    check_some(records)
    early = any(record.stopped is not None for record in records)
    right = votes = 0
    for record in records:
        tally = record.selection if early else record.estimation
        if tally is None:
            return None
        right += tally.counts[record.label] if record.label < len(tally.counts) else 0
        votes += tally.n
    return right / votes


def abstention_rate(records: Rows) -> float:
    """The fraction of all inputs that were not decided."""
    check_some(records)
    return int(np.count_nonzero(Records.of(records).abstained)) / len(records)


def counted_radii(records: Rows) -> NDArray[np.float64]:
    """What each input adds to the ACR: its radius, 0 unless it is correct."""
    columns = Records.of(records)
    return np.where(columns.correct, columns.radius, 0.0)


def median_radius(records: Rows) -> float:
    """The largest radius at which at least half of all inputs are certified and correct; 0 if there is none."""
    check_some(records)
    counted = np.sort(counted_radii(records))
    return float(counted[len(counted) // 2])


def acr_share_of_top(records: Rows, fraction: float = 0.1) -> float | None:
    """The share of the ACR that the ``fraction`` of inputs with the largest radii brings; None if the ACR is 0.

    ACR grows with a few over-confident inputs as well as with many robust ones: equal radii for all would give
    ``fraction`` itself, and a share far above it says that few inputs carry the figure. The number of inputs is
    rounded up.
    """
    check_some(records)
    if not 0 < fraction <= 1:
        raise InvalidValueError(f"fraction must lie above 0 and be at most 1, got {fraction}")
    counted = np.sort(counted_radii(records))[::-1]
    total = math.fsum(counted)
    top = math.ceil(fraction * len(counted) - 1e-9)  # 0.07 · 100 is a hair above 7
    return math.fsum(counted[:top]) / total if total > 0 else None


@dataclass(frozen=True)
class Runtime:
    """Worker time of the votes; with several workers the clock on the wall shows less.

    ``votes_per_second`` is None where votes aren't known.
    """

    total_seconds: float
    mean_seconds: float
    votes_per_second: float | None


def runtime(records: Rows, votes: int | None = None) -> Runtime | None:
    """The time the records state; None for logs without times. ``votes``: how many, where records don't keep all."""
    check_some(records)
    total = math.fsum(Records.of(records).seconds)
    if total < _LEAST_SECONDS:
        return None
    tallies = [tally for record in records for tally in (record.selection, record.estimation)]
    kept = [tally.stop - tally.start for tally in tallies if tally is not None]
    if votes is None and len(kept) == len(tallies):
        votes = sum(kept)
    return Runtime(total, total / len(records), None if votes is None else votes / total)


def largest_radius(records: Rows) -> float:
    """The largest radius certified of a correct answer; 0 if there is none."""
    return float(correct_radii(records)[-1:].sum())


def guaranteed_fraction(certified_fraction: float, m: int, alpha: float, rho: float) -> float:
    """A lower bound of a test set's true certified accuracy, from the fraction that CERTIFY found.

    Promise: let each of the ``m`` inputs be certified from its own independent votes, at a level that fails
    with probability at most ``alpha``. Then, with probability at least 1−``rho`` over all those votes, the
    fraction of these very m inputs that the smoothed classifier gets right throughout the ball of radius r is
    at least the number returned, where ``certified_fraction`` is their certified accuracy at r. It holds for
    one r fixed in advance, and says nothing of inputs outside the test set.

    The number of false certificates is at most binomial(m, α), and Bernstein's inequality bounds its mean by
    α + √(2 α(1−α) ln(1/ρ) / m) + ln(1/ρ) / (3m); without the 2 that the statement is sometimes quoted
    without, it fails more often than ρ (already for m = 10 000 and α = ρ = 0.001).
    """
    if not 0 <= certified_fraction <= 1:
        raise InvalidValueError(f"certified_fraction must lie between 0 and 1, got {certified_fraction}")
    certified_fraction = float(certified_fraction)
    check_count("m", m)
    alpha, rho = check_probability("alpha", alpha), check_probability("rho", rho)
    log_term = -math.log(rho) / m
    return max(0.0, certified_fraction - alpha - math.sqrt(2 * alpha * (1 - alpha) * log_term) - log_term / 3)


def _named(data: DataStatement) -> str:
    digest = data.sha256
    return f"{data.name or 'unnamed data'}{f' ({digest[:12]}…)' if digest else ''}"


def certified_accuracy_steps(records: Rows) -> tuple[Curve, Curve]:
    """Radii at which certified accuracy drops, from 0 on, and its value (0 to 1) beyond each of them."""
    return step_curve(correct_radii(records), len(records), start=0.0)


def step_curve(certified: Curve, inputs: int, start: float) -> tuple[Curve, Curve]:
    """From ``start`` on, where the share of ``inputs`` that reach a size drops, and its value beyond."""
    sizes, counts = step_counts(certified, start)
    return sizes, counts / inputs


def pointwise_band(accuracy: Curve, inputs: int) -> tuple[Curve, Curve]:
    """95 % Clopper–Pearson limits of each value; they hold for one radius looked at, not for the whole curve."""
    low, high = zip(*(rate_interval(round(count), inputs) for count in (accuracy * inputs).tolist()))
    return np.array(low), np.array(high)


def envelope_steps(runs: Sequence[Run]) -> tuple[Curve, Curve]:
    """Radii at which any run's certified accuracy drops, from 0 on, and the highest value beyond each of them."""
    radii, curves = _beyond_jumps(runs)
    return radii, curves.max(axis=0)


def mean_curve(runs: Sequence[Run]) -> tuple[Curve, Curve, Curve]:
    """Radii of all jumps from 0 on, and beyond each the mean and sd over runs of the certified accuracy (0 to 1)."""
    radii, curves = _beyond_jumps(runs)
    spread = curves.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros_like(radii)
    return radii, curves.mean(axis=0), spread


def _beyond_jumps(runs: Sequence[Run]) -> tuple[Curve, Curve]:
    """0 and the radii at which any run's certified accuracy drops; for each run, a row of its values beyond them."""
    jumps = np.unique(np.concatenate([correct_radii(run.records) for run in runs]))
    # "Beyond" a jump is what the next larger number sees: an input counts at its own radius, not after it.
    beyond = [0.0, *np.nextafter(jumps, np.inf)]
    return np.array([0.0, *jumps]), np.array([certified_accuracy(run.records, beyond) for run in runs])


def thin(radii: Floats, counts: Ints, most: int) -> tuple[Floats, Ints, Ints]:
    """At most ``most`` steps of a certified count, ``counts[k]`` beyond ``radii[k]``, losing as little as they can.

    Merged ones take the lowest count among them, so the curve never lies above; the last array has the highest.
    """
    check_count("most", most, least=3)
    if len(radii) <= most:
        return radii, counts, counts
    falling = [-count for count in counts.tolist()]
    low, high = 0, int(counts[0])  # inputs lost at most: more than low, no more than high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_kept(falling, middle)) <= most else (middle, high)
    kept = np.array(_kept(falling, high))
    last_merged = np.concatenate([kept[1:] - 1, [len(radii) - 1]])
    return radii[kept], counts[last_merged], counts[kept]


def _kept(falling: list[int], loss: int) -> list[int]:
    """Where stretches begin that each lose at most ``loss`` inputs by being drawn at their end's height.

    The first two steps stay, so that the accuracy at radius 0 is exact, and the last, where the curve ends.
    """
    last = len(falling) - 1
    kept, place = [0], 1
    while place < last:
        kept.append(place)
        place = bisect_right(falling, falling[place] + loss)
    return [*kept, last]
