"""Record: what a run keeps of one input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from smoothcert.tally import ABSTAIN, Tally


@dataclass(frozen=True)
class Record:
    """One certified input. ``radius`` is in full precision, 0 when abstained; ``seconds`` is the worker time that its
    votes took.

    Tallies, and the base classifier's class for the input without noise, are None for results imported from another
    tool's log, which has none. Where the certified region isn't a ball, ``radius`` is that of the largest ball inside
    and ``volume_radius`` that of the ball with the same volume. ``stopped`` says why voting ended, where the plan lets
    it end early.
    """

    index: int
    label: int
    predicted: int
    radius: float
    sigma: float
    seconds: float
    selection: Tally | None = None
    estimation: Tally | None = None
    base: int | None = None
    volume_radius: float | None = None
    stopped: str | None = None

    @property
    def abstained(self) -> bool:
        """Whether nothing was certified."""
        return self.predicted == ABSTAIN

    @property
    def correct(self) -> bool:
        """Whether the certified class is the label; an abstention is not."""
        return self.predicted == self.label and not self.abstained


def results_digest(records: Iterable[Record]) -> str:
    """SHA-256 over everything but the time: equal digests mean equal results to the last bit."""
    digest = hashlib.sha256()
    for record in sorted(records, key=lambda r: r.index):
        fields = [
            record.index,
            record.label,
            record.predicted,
            record.radius.hex(),
            record.sigma.hex(),
            record.selection and record.selection.as_json(),
            record.estimation and record.estimation.as_json(),
            record.base,
        ]
        # Only where they are stated: digests of plain runs stay what they were.
        if record.volume_radius is not None or record.stopped is not None:
            fields += [record.volume_radius and record.volume_radius.hex(), record.stopped]
        digest.update(json.dumps(fields).encode())
    return digest.hexdigest()
