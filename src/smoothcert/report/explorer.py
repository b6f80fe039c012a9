"""Explorer: which inputs the page holds one by one, and what it holds of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from smoothcert.report.groups import Group
from smoothcert.rounding import decimal_down
from smoothcert.runs import Run
from smoothcert.runs.columns import Floats, Ints
from smoothcert.runs.vote_columns import NONE

T = TypeVar("T")

MOST_RUNS = 24
"""Runs whose inputs can be looked at one by one; all others are in tables, charts and comparisons."""


def choose_inputs(runs: Sequence[Run], most: int) -> Ints:
    """At most ``most`` inputs: in turn from every run a wrong, an abstained, a barely certified and any other one."""
    lists = [kind.tolist() for run in runs for kind in _kinds(run)]
    return np.array(sorted(_in_turn(lists, most)), dtype=np.int64)


def least_robust(run: Run) -> Ints:
    """Places of the tenth of the right answers (rounded up) with the smallest radii, least first."""
    right = np.flatnonzero(run.records.correct)
    order = right[np.argsort(run.records.radius[right], kind="stable")]
    return order[: math.ceil(len(right) / 10)]


def records_json(run: Run, chosen: Ints) -> dict[str, Any]:
    """The chosen inputs' records as columns, in the order of their index."""
    places = np.flatnonzero(np.isin(run.records.index, chosen))
    votes = run.records.votes
    weak = np.zeros(len(run.records), dtype=bool)
    weak[least_robust(run)] = True
    return {
        "index": run.records.index[places].tolist(),
        "label": run.records.label[places].tolist(),
        "predicted": run.records.predicted[places].tolist(),
        "radius": [float(decimal_down(radius, 6)) for radius in run.records.radius[places].tolist()],
        "sigma": [f"{sigma:g}" for sigma in run.records.sigma[places].tolist()],
        "base": _stated(run.records.base[places]),
        "weak": weak[places].astype(int).tolist(),
        "total": _whole(votes.total[places]),
        "chosen": _stated(votes.chosen[places]),
        "votes": _whole(votes.chosen_votes[places]),
        "rival": _stated(votes.rival[places]),
        "rivalVotes": _whole(votes.rival_votes[places]),
        "leaders": [
            [[int(c), _number(v)] for c, v in zip(classes, counts) if c != NONE and v > 0]
            for classes, counts in zip(votes.leaders[places], votes.leader_votes[places].tolist())
        ],
    }


def counts_json(run: Run) -> dict[str, int]:
    """How many of all the run's inputs each filter finds."""
    return {
        "all": len(run.records),
        "wrong": int(np.count_nonzero(~run.records.correct & ~run.records.abstained)),
        "abstained": int(np.count_nonzero(run.records.abstained)),
        "weak": len(least_robust(run)),
    }


def explored(groups: Sequence[Group], most: int = MOST_RUNS) -> set[str]:
    """Names of the runs to explore: in turn from every group, so that none goes without."""
    return _in_turn([[run.name for run in group.runs if len(run.records)] for group in groups], most)


def _in_turn(lists: Iterable[Iterable[T]], most: int) -> set[T]:
    """At most so many, in turn from every list, each time the next that isn't among them yet."""
    chosen: set[T] = set()
    turns = [iter(each) for each in lists]
    while turns and len(chosen) < most:
        still = []
        for turn in turns:
            fresh = next((one for one in turn if one not in chosen), None)
            if fresh is not None and len(chosen) < most:
                chosen.add(fresh)
                still.append(turn)
        turns = still
    return chosen


def _kinds(run: Run) -> Iterator[Ints]:
    wrong = np.flatnonzero(~run.records.correct & ~run.records.abstained)
    # Wrong answers that are certified far out come first: they say most about the model.
    yield run.records.index[wrong[np.argsort(-run.records.radius[wrong], kind="stable")]]
    yield run.records.index[run.records.abstained]
    yield run.records.index[least_robust(run)]
    by_radius = run.records.index[np.argsort(run.records.radius, kind="stable")]
    yield by_radius[_spread(len(by_radius))]


def _spread(count: int) -> Ints:
    """0 … count−1 in an order of which every beginning is evenly spread."""
    bits = max(1, (count - 1).bit_length())
    places = np.arange(2**bits)
    reversed_places = np.zeros_like(places)
    for bit in range(bits):
        reversed_places |= ((places >> bit) & 1) << (bits - 1 - bit)
    return np.asarray(reversed_places[reversed_places < count], dtype=np.int64)


def _stated(classes: Ints) -> list[int | None]:
    return [None if c == NONE else c for c in classes.tolist()]


def _whole(values: Floats) -> list[float | int | None]:
    return [None if math.isnan(value) else _number(value) for value in values.tolist()]


def _number(value: float) -> float | int:
    """Hard votes are whole numbers; sums of probabilities keep one decimal."""
    return int(value) if value == int(value) else round(value, 1)
