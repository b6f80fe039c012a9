"""The median of a chooser's levels under noise: which one it is, and how far away it can't become another."""

from __future__ import annotations

import math
from itertools import accumulate

from smoothcert.bounds import Bound
from smoothcert.certificates import certificate_for
from smoothcert.noise import Noise
from smoothcert.tally import Tally


def median_level(votes: Tally) -> int:
    """The smallest level that half of the votes don't exceed."""
    return next(level for level, below in enumerate(accumulate(votes.counts)) if 2 * below >= votes.n)


def reaches(votes: Tally, home: int, noise: Noise, bound: Bound, alpha: float, error: float) -> list[float]:
    """For each level a distance within which the median isn't that level; 0 for ``home``, of which nothing is shown.

    For any *one* level it is wrong with probability at most ``alpha`` over the votes, if ``home`` was chosen without
    them. Level k > home: the median is below k wherever P[h < k] ≥ ½, and the certificate of the noise for the event
    h < k, as of any class, says how far that lasts. Level k < home: the same with h > k and P[h > k] > ½.
    ``error`` is the sampler's.
    """
    certificate = certificate_for(noise)
    found = []
    for level in range(len(votes.counts)):
        if level == home or not votes.n:
            found.append(0.0)
            continue
        elsewhere = sum(votes.counts[:level] if level > home else votes.counts[level + 1 :])
        event = Tally(votes.stream, votes.start, votes.stop, (elsewhere, votes.n - elsewhere))
        found.append(certificate.radius(bound(event, 0, alpha).paying(error)))
    return found


def combined_radius(reached: list[float], radii: list[float]) -> float:
    """min over levels of max(reach, radius): where the median can't come to a level, that level needn't agree."""
    return min(map(max, reached, radii))


def beyond_all(levels: int, home: int) -> list[float]:
    """The reaches of a chooser that is known to say ``home`` everywhere."""
    return [0.0 if level == home else math.inf for level in range(levels)]
