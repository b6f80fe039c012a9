"""Figures of votes as columns: the classes ahead of each input and how far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothcert.runs.tally_text import plain_scores
from smoothcert.tally import SOFT_UNIT

if TYPE_CHECKING:
    from smoothcert.runs.columns import Records

SHOWN_CLASSES = 4
"""Classes with a piece of their own in a votes bar; the others share one."""
NONE = -2
"""In place of a class where there is none."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VoteColumns:
    """Of each input: votes for its classes ahead, for the chosen one, and for the strongest wrong one.

    Soft votes count as the sum of probabilities. Inputs without a tally have NaN and :data:`NONE`.
    """

    total: Floats
    chosen: Ints
    chosen_votes: Floats
    rival: Ints
    rival_votes: Floats
    leaders: Ints
    leader_votes: Floats

    @classmethod
    def of(cls, records: Records) -> VoteColumns:
        """The columns of a run's estimation votes."""
        count = len(records)
        votes = cls(
            total=np.full(count, np.nan),
            chosen=np.full(count, NONE),
            chosen_votes=np.full(count, np.nan),
            rival=np.full(count, NONE),
            rival_votes=np.full(count, np.nan),
            leaders=np.full((count, SHOWN_CLASSES), NONE),
            leader_votes=np.zeros((count, SHOWN_CLASSES)),
        )
        scores: dict[int, Sequence[float]] = {}
        by_width: dict[int, list[int]] = {}
        for place, kept in enumerate(records.estimation):
            if kept is not None:
                n, one = _scores(records, place)
                scores[place], votes.total[place] = one, n or np.nan
                by_width.setdefault(len(one), []).append(place)
        for places in by_width.values():
            votes._fill(
                records, np.array(places), np.array([scores[place] for place in places], dtype=np.float64)
            )
        return votes

    def _fill(self, records: Records, places: Ints, table: Floats) -> None:
        """Fill in the inputs at ``places``, whose scores are the rows of ``table``."""
        rows, width = np.arange(len(places)), table.shape[1]
        label = records.label[places]
        chosen = records.predicted[places].copy()
        for row in np.flatnonzero(records.abstained[places]):
            selection = records[int(places[row])].selection
            chosen[row] = NONE if selection is None else selection.top()
        # Where voting ended before it began, there is a class and no share of votes.
        known = (chosen >= 0) & (chosen < width) & ~np.isnan(self.total[places])
        self.chosen[places] = np.where(known, chosen, NONE)
        self.chosen_votes[places] = np.where(known, table[rows, np.where(known, chosen, 0)], np.nan)
        order = np.argsort(-table, axis=1, kind="stable")[:, :SHOWN_CLASSES]
        self.leaders[places, : order.shape[1]] = order
        self.leader_votes[places, : order.shape[1]] = np.take_along_axis(table, order, axis=1)
        labelled = label < width
        table[rows[labelled], label[labelled]] = -1.0
        rival = table.argmax(axis=1)
        voted = table[rows, rival] > 0
        self.rival[places] = np.where(voted, rival, NONE)
        self.rival_votes[places] = np.where(voted, table[rows, rival], 0.0)


def _scores(records: Records, place: int) -> tuple[int, Sequence[float]]:
    """The number of votes, and each class's: counts, or sums of probabilities."""
    kept = records.estimation[place]
    if isinstance(kept, str) and (found := plain_scores(kept)) is not None:
        counts, sums = found
        return sum(counts), counts if sums is None else [one / SOFT_UNIT for one in sums]
    tally = records[place].estimation
    assert tally is not None
    return tally.n, tally.counts if tally.sums is None else [one / SOFT_UNIT for one in tally.sums]
