"""A run condensed to arrays: what the page needs of ten thousand records, without keeping them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.ceiling import radius_ceiling
from smoothcert.analysis.evidence import certain_radii, is_sample, printed_radii
from smoothcert.analysis.votes import VotesUsed, votes_used
from smoothcert.noise import DIAGONAL_NOISES, SIGMAS_FILE, DiagonalNoise, stated_noise
from smoothcert.runs import Manifest, Record, Run
from smoothcert.runs.manifest import FILE_NAME
from smoothcert.runs.printed import Printed
from smoothcert.runs.records import results_digest
from smoothcert.tally import ABSTAIN, SOFT_UNIT, Tally

SHOWN_CLASSES = 4
"""Classes with a piece of their own in a votes bar; the others share one."""
NONE = -2
"""In place of a class that a record doesn't state."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Votes:
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


@dataclass(frozen=True, eq=False)
class Condensed:
    """One run. ``certain`` are the radii that statements rest on: of a log half a unit below those it prints.

    ``shortfall`` says in words what a run that isn't known to be complete holds.
    """

    name: str
    manifest: Manifest
    norm: str
    index: Ints
    label: Ints
    predicted: Ints
    radius: Floats
    certain: Floats
    sigma: Floats
    base: Ints
    votes: Votes
    ceiling: float | None
    shortfall: str | None
    sample: bool
    """Whether tests and intervals over the choice of inputs hold for it."""
    printed: Printed | None
    used: VotesUsed | None
    results_sha256: str
    manifest_sha256: str | None
    scales: Floats | None = None
    """The noise's scale for each dimension, where it has one."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Which inputs are answered correctly."""
        return np.equal(self.predicted, self.label)

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Which inputs aren't answered."""
        return np.equal(self.predicted, ABSTAIN)

    @property
    def alpha(self) -> float | None:
        """The failure probability of a certificate, where it is stated."""
        alpha = self.manifest.plan.alpha
        return None if alpha is None else float(alpha)

    @property
    def stated_sigma(self) -> float | None:
        """The plan's σ, where it is stated."""
        sigma = self.manifest.plan.sigma
        return None if sigma is None else float(sigma)

    def correct_radii(self) -> Floats:
        """The radii of the right answers, in ascending order."""
        return np.sort(self.radius[self.correct])

    def certified(self, radius: float) -> int:
        """How many inputs are right and certified at ``radius`` or more."""
        return int(np.count_nonzero(self.correct & (self.radius >= radius)))

    def certain_at(self, radius: float) -> int:
        """How many of them certainly are, whatever a log's rounding was."""
        return int(np.count_nonzero(self.correct & (self.certain >= radius)))


def condense(run: Run, name: str) -> Condensed:
    """What the page needs of a run, which is called ``name`` on it."""
    records = run.records
    statement = run.path / FILE_NAME
    return Condensed(
        name=name,
        manifest=run.manifest,
        norm=run.norm,
        index=_ints(record.index for record in records),
        label=_ints(record.label for record in records),
        predicted=_ints(record.predicted for record in records),
        radius=np.array([record.radius for record in records], dtype=np.float64),
        certain=certain_radii(run),
        sigma=np.array([record.sigma for record in records], dtype=np.float64),
        base=_ints(NONE if record.base is None else record.base for record in records),
        votes=_votes(records),
        ceiling=radius_ceiling(run),
        used=votes_used(run),
        shortfall=run.shortfall,
        sample=is_sample(run),
        printed=printed_radii(run),
        results_sha256=results_digest(records),
        manifest_sha256=hashlib.sha256(statement.read_bytes()).hexdigest() if statement.is_file() else None,
        scales=_scales(run),
    )


def _scales(run: Run) -> Floats | None:
    if run.manifest.plan.noise not in DIAGONAL_NOISES:
        return None
    path = run.path / SIGMAS_FILE
    if not path.exists():
        return None
    noise = stated_noise(run.manifest.plan, run.path)
    assert isinstance(noise, DiagonalNoise)
    return noise.sigmas


def _ints(values: object) -> Ints:
    return np.fromiter(values, dtype=np.int64)  # type: ignore[call-overload, no-any-return]


def _votes(records: Sequence[Record]) -> Votes:
    count = len(records)
    votes = Votes(
        total=np.full(count, np.nan),
        chosen=np.full(count, NONE),
        chosen_votes=np.full(count, np.nan),
        rival=np.full(count, NONE),
        rival_votes=np.full(count, np.nan),
        leaders=np.full((count, SHOWN_CLASSES), NONE),
        leader_votes=np.zeros((count, SHOWN_CLASSES)),
    )
    by_width: dict[int, list[int]] = {}
    for place, record in enumerate(records):
        if record.estimation is not None:
            by_width.setdefault(len(record.estimation.counts), []).append(place)
    for width, places in by_width.items():
        _fill(votes, records, np.array(places), width)
    return votes


def _fill(votes: Votes, records: Sequence[Record], places: Ints, width: int) -> None:
    """Fill in the inputs at ``places``, whose tallies all have ``width`` classes."""
    rows = np.arange(len(places))
    table = np.array([_scores(records[place].estimation) for place in places], dtype=np.float64)
    chosen = _ints(_chosen(records[place]) for place in places)
    label = _ints(records[place].label for place in places)
    votes.total[places] = [
        tally.n or np.nan for place in places if (tally := records[place].estimation) is not None
    ]
    # Where voting ended before it began, there is a class and no share of votes.
    known = (chosen >= 0) & (chosen < width) & ~np.isnan(votes.total[places])
    votes.chosen[places] = np.where(known, chosen, NONE)
    votes.chosen_votes[places] = np.where(known, table[rows, np.where(known, chosen, 0)], np.nan)
    order = np.argsort(-table, axis=1, kind="stable")[:, :SHOWN_CLASSES]
    votes.leaders[places, : order.shape[1]] = order
    votes.leader_votes[places, : order.shape[1]] = np.take_along_axis(table, order, axis=1)
    labelled = label < width
    table[rows[labelled], label[labelled]] = -1.0
    rival = table.argmax(axis=1)
    voted = table[rows, rival] > 0
    votes.rival[places] = np.where(voted, rival, NONE)
    votes.rival_votes[places] = np.where(voted, table[rows, rival], 0.0)


def _scores(tally: Tally | None) -> Sequence[float]:
    assert tally is not None
    return tally.counts if tally.sums is None else [total / SOFT_UNIT for total in tally.sums]


def _chosen(record: Record) -> int:
    """The class whose probability was bounded, answered or not."""
    if not record.abstained:
        return record.predicted
    return NONE if record.selection is None else record.selection.top()
