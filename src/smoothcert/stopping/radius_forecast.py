"""Radius forecasts: what radius to expect of n fresh votes, judged by a pilot's votes."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv

from smoothcert.stopping.voting_state import RadiusOf
from smoothcert.tally import Phase, Stream, Tally

STRATA = 32
_GOLDEN = 0.6180339887498949
# The strongest rival's share of the votes against, to this fineness: so many forecasts are alike.
_RIVAL_STEPS = 16
_STREAM = Stream(0, 0, Phase.ESTIMATION)


class RadiusForecast:
    """Expected radii for one plan; alike pilots share their arithmetic.

    p_A has the posterior Beta(k + ½, m − k + ½) after k of m pilot votes; the mean is over it and over the count
    of n votes, in strata fixed beforehand: the same pilot always gives the same numbers. No certificate rests on them.
    """

    def __init__(self, radius_of: RadiusOf) -> None:
        """``radius_of`` a tally whose class 0 is to be certified."""
        self._radius_of = radius_of
        self._known: dict[tuple[int, int, int, int], float] = {}

    def expected(self, pilot: Tally, chosen: int, n: int) -> float:
        """The mean radius of n votes."""
        k, m = pilot.counts[chosen], pilot.n
        rival = max((count for c, count in enumerate(pilot.counts) if c != chosen), default=0)
        share = round(_RIVAL_STEPS * rival / (m - k)) if m > k else _RIVAL_STEPS
        key = (k, m, share, n)
        if key not in self._known:
            self._known[key] = self._mean(k, m, max(1, share) / _RIVAL_STEPS, n)
        return self._known[key]

    def ceiling(self, n: int) -> float:
        """The radius of n votes that are all for one class."""
        return self._radius_of(_tally(n, n, 1.0))

    def fewest(self, pilot: Tally, chosen: int, sizes: list[int], short: float) -> int:
        """The smallest of the increasing ``sizes`` whose mean radius is at most ``short`` below the last one's."""
        goal = self.expected(pilot, chosen, sizes[-1]) - short
        low, high = -1, len(sizes) - 1  # the radius grows with n, so that halving finds it
        while high - low > 1:
            middle = (low + high) // 2
            if self.expected(pilot, chosen, sizes[middle]) >= goal:
                high = middle
            else:
                low = middle
        return sizes[high]

    def _mean(self, k: int, m: int, rival: float, n: int) -> float:
        from scipy.stats import (
            binom,  # takes a third of the time in which `table` starts: for those who forecast alone
        )

        places = (np.arange(STRATA) + 0.5) / STRATA
        p = betaincinv(k + 0.5, m - k + 0.5, places)
        luck = (np.arange(STRATA) * _GOLDEN + 0.5 / STRATA) % 1.0
        counts = np.clip(binom.ppf(luck, n, p), 0, n).astype(np.int64)
        values, times = np.unique(counts, return_counts=True)
        radii = [self._radius_of(_tally(int(value), n, rival)) for value in values]
        return math.fsum(r * t for r, t in zip(radii, times.tolist())) / STRATA


def _tally(k: int, n: int, rival: float) -> Tally:
    """k votes for class 0, the share ``rival`` of the others for class 1, the rest where they harm least."""
    against = n - k
    strongest = math.ceil(against * rival)
    rest, others = against - strongest, []
    while rest:
        others.append(min(rest, strongest))
        rest -= others[-1]
    return Tally(_STREAM, 0, n, (k, strongest, *others))
