"""States of a vote, with the mixture bound."""

import re

from scipy.special import ndtri

from smoothcert.bounds.anytime import mixture_lower
from smoothcert.smoothing.stopping.forecasts import VotingState
from smoothcert.tally import Phase, Stream, Tally

STREAM = Stream(0, 0, Phase.ESTIMATION)


def told(reason: str | None) -> tuple[str, list[float]]:
    """The word that a reason begins with, and the numbers in its details."""
    word, _, details = (reason or "").partition(":")
    return word, [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", details)]


def radius_of(tally: Tally) -> float:
    """σ = 1, the mixture bound of class 0 at α = .001."""
    if not tally.n:
        return 0.0
    lower = mixture_lower(tally.counts[0], tally.n, 0.001)
    return max(0.0, float(ndtri(lower))) if lower > 0.5 else 0.0


def voting(*counts: int, most_votes: int = 100_000, label: int | None = None) -> VotingState:
    tally = Tally(STREAM, 0, sum(counts), counts)
    return VotingState(0, label, most_votes, tally, radius_of(tally), radius_of)
