"""The σ of each input, in words, for runs and logs that have one for each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from smoothcert.runs import Record


def own_sigmas(records: Sequence[Record]) -> str | None:
    """``0.05 to 0.31, median 0.12``; None where all inputs have the same σ."""
    sigmas = [record.sigma for record in records]
    if len(set(sigmas)) <= 1:
        return None
    return f"{min(sigmas):.4g} to {max(sigmas):.4g}, median {statistics.median(sigmas):.4g}"
