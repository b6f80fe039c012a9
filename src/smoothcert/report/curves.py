"""Curves and histograms: certified accuracy as steps, few enough for a page and never above the truth."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from smoothcert.analysis.ceiling import radius_ceiling
from smoothcert.analysis.evidence import is_sample
from smoothcert.analysis.intervals import rate_interval
from smoothcert.analysis.metrics import acr_share_of_top, correct_radii
from smoothcert.errors import check_count
from smoothcert.rounding import decimal_down
from smoothcert.runs import Run
from smoothcert.runs.columns import Floats, Ints
from smoothcert.runs.record_figures import step_counts

MOST_POINTS = 500
_RADIUS_BINS, _SHARE_BINS = 40, 25


@dataclass(frozen=True, eq=False)
class Steps:
    """Certified counts as a step function: beyond ``radii[k]`` and up to ``radii[k+1]`` it is ``counts[k]``.

    ``highest[k]`` is the largest true count in that stretch; it differs from ``counts[k]`` where steps were merged.
    """

    radii: Floats
    counts: Ints
    highest: Ints


def certified_steps(certified: Floats) -> Steps:
    """Every jump of the certified count, from radius 0 on."""
    radii, counts = step_counts(certified)
    return Steps(radii, counts, counts)


def thin(steps: Steps, most: int = MOST_POINTS) -> Steps:
    """At most ``most`` steps, losing as little as they can.

    Merged ones take the lowest count among them, so the curve never lies above.
    """
    check_count("most", most, least=3)
    size = len(steps.radii)
    if size <= most:
        return steps
    falling = [-count for count in steps.counts.tolist()]
    low, high = 0, int(steps.counts[0])  # inputs lost at most: more than low, no more than high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_kept(falling, middle)) <= most else (middle, high)
    kept = np.array(_kept(falling, high))
    last_merged = np.concatenate([kept[1:] - 1, [size - 1]])
    return Steps(steps.radii[kept], steps.counts[last_merged], steps.highest[kept])


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


def curve_json(run: Run) -> dict[str, Any]:
    """Radii (cut to six decimals, so never to the right of the truth), counts, and the pointwise 95 % band.

    The band is None where inputs depend on one another, or aren't all done: none would hold.
    """
    everything = certified_steps(correct_radii(run.records))
    steps = thin(everything)
    total = len(run.records)
    low = high = None
    if is_sample(run):
        low = [math.floor(interval(count, total)[0] * 1e4) / 1e4 for count in steps.counts.tolist()]
        high = [math.ceil(interval(count, total)[1] * 1e4) / 1e4 for count in steps.highest.tolist()]
    return {
        "radii": [float(decimal_down(radius, 6)) for radius in steps.radii.tolist()],
        "counts": steps.counts.tolist(),
        "low": low,
        "high": high,
        "jumps": len(everything.radii) - 1,
        "ceiling": radius_ceiling(run),
    }


def histograms_json(run: Run, reach: float) -> dict[str, Any]:
    """Radii of right and wrong answers in equal bins up to ``reach``, and the chosen class's share of the votes."""
    edges = np.linspace(0.0, reach if reach > 0 else 1.0, _RADIUS_BINS + 1)
    answered_wrong = ~run.records.correct & ~run.records.abstained
    shares = (run.records.votes.chosen_votes / run.records.votes.total)[
        ~np.isnan(run.records.votes.chosen_votes)
    ]
    return {
        "reach": float(edges[-1]),
        "right": np.histogram(run.records.radius[run.records.correct], edges)[0].tolist(),
        "wrong": np.histogram(run.records.radius[answered_wrong], edges)[0].tolist(),
        "shares": np.histogram(shares, _SHARE_BINS, (0.0, 1.0))[0].tolist() if shares.size else None,
    }


def carried_by_few(run: Run) -> str | None:
    """How unequally the average certified radius is spread, in a sentence."""
    share = acr_share_of_top(run.records) if len(run.records) else None
    if share is None:
        return None
    nothing = len(run.records) - int(np.count_nonzero(correct_radii(run.records) > 0))
    return (
        f"The tenth of the inputs with the largest radii carries {100 * share:.0f} % of this run's ACR, and {nothing} "
        f"of its {len(run.records)} inputs add nothing to it."
    )


@lru_cache(maxsize=200_000)
def interval(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a rate; many runs share their counts."""
    return rate_interval(count, total, 0.95)
