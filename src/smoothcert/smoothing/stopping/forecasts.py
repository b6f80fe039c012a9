"""What further votes would bring an input: the state that rules see, checkpoints, forecasts and allocation.

None of these figures is a certificate: a wrong forecast costs radius or votes, never validity.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from smoothcert.bounds.anytime import mixture_upper
from smoothcert.bounds.base import Bound
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.tally import Phase, Stream, Tally

RadiusOf = Callable[[Tally], float]
"""The radius that the plan's bound and theorem give the chosen class for a tally of estimation votes."""


@dataclass(frozen=True)
class VotingState:
    """Where the voting on one input stands.

    ``tally`` holds the estimation votes so far (perhaps none), ``radius`` is what they certify for the class
    ``chosen``; ``label`` is None where none is known, ``most_votes`` the most that there can be.
    """

    chosen: int
    label: int | None
    most_votes: int
    tally: Tally
    radius: float
    radius_of: RadiusOf

    @property
    def votes(self) -> int:
        """Estimation votes so far."""
        return self.tally.n

    def best_radius(self, futility: float) -> float:
        """A radius that the full budget will hardly exceed.

        The votes to come are taken at the upper end of a confidence sequence for p_A at level ``futility``, plus what
        chance may add to them at that level; rivals are taken at the lower end of what they have. Being wrong here
        ends the voting too early: that costs radius and never validity, since no certificate is made of it.
        """
        from scipy.special import ndtri

        left = self.most_votes - self.votes
        if left <= 0:
            return self.radius
        have = self.tally.counts[self.chosen]
        share = mixture_upper(have, self.votes, futility)
        luck = -float(ndtri(futility)) * math.sqrt(left * share * (1.0 - share))
        return self.radius_of(self._continued(min(left, math.ceil(left * share + luck)), left, futility))

    def expected_radius(self) -> float:
        """The radius at the full budget if votes continue as they were."""
        if self.votes >= self.most_votes:
            return self.radius
        counts = [count * self.most_votes // self.votes for count in self.tally.counts]
        counts[self.chosen] += self.most_votes - sum(counts)  # what rounding left over: the optimistic way
        return self.radius_of(_at(self.tally, counts))

    def _continued(self, more: int, left: int, futility: float) -> Tally:
        """``left`` further votes, ``more`` of them for the chosen class."""
        counts = list(self.tally.counts)
        others = [c for c in range(len(counts)) if c != self.chosen]
        if not others:
            return _at(self.tally, [counts[0] + left])
        rest, against = left - more, self.votes - counts[self.chosen]
        rival = max(others, key=counts.__getitem__)
        share = clopper_pearson_lower(counts[rival], against, futility) if against else 0.0
        theirs = rest if len(others) == 1 else math.floor(rest * share)
        counts[self.chosen] += more
        counts[rival] += theirs
        small = [c for c in others if c != rival]
        for place, c in enumerate(small):
            counts[c] += (rest - theirs + place) // len(small)
        return _at(self.tally, counts)


def _at(tally: Tally, counts: list[int]) -> Tally:
    return replace(tally, stop=tally.start + sum(counts), counts=tuple(counts))


STRATA = 32
_GOLDEN = 0.6180339887498949
# The strongest rival's share of the votes against, to this fineness: so many forecasts are alike.
_RIVAL_STEPS = 16
_STREAM = Stream(0, 0, Phase.ESTIMATION)


class RadiusForecast:
    """Expected radii for one plan; alike pilots share their arithmetic.

    p_A has the posterior Beta(k + ½, m − k + ½) after k of m pilot votes; the mean is over it and over the count
    of n votes, in strata fixed in advance: the same pilot always gives the same numbers. No certificate rests on them.
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
        from scipy.special import betaincinv
        from scipy.stats import binom  # importing it takes a third of the time in which `table` starts

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


_FIRST_CHECKPOINT = 64
_GROWTH = 1.15  # an input overshoots by half of that; a hundred thousand votes have some forty checkpoints


def checkpoints(bound: Bound, n: int, block: int) -> Iterator[int]:
    """Numbers of votes at which stop rules are evaluated, increasing to the budget n.

    The bound's own schedule if it has one (the plan checks that n belongs to it); else geometric, in whole blocks of
    the engine so that no pass is wasted.
    """
    if bound.next_look is None:
        yield from sizes(_FIRST_CHECKPOINT, n, block, _GROWTH)
        return
    votes = bound.next_look(0)
    while votes <= n:
        yield votes
        votes = bound.next_look(votes)


def sizes(smallest: int, largest: int, block: int, growth: float = _GROWTH) -> list[int]:
    """Numbers of votes to choose from: geometric in whole blocks, with ``largest`` as the last."""
    increasing = []
    size = -(-smallest // block) * block
    while size < largest:
        increasing.append(size)
        size = max(size + block, -(-int(size * growth) // block) * block)
    return [*increasing, largest]


@dataclass(frozen=True)
class Share:
    """What votes would bring one input: expected ``radii`` at increasing numbers of votes ``sizes``."""

    index: int
    sizes: Sequence[int]
    radii: Sequence[float]


def allocate(shares: Sequence[Share], total: int) -> dict[int, int]:
    """Votes for each input, at most ``total`` in all, with the largest sum of expected radii that steps can reach.

    Greedy on the gain per vote along each input's concave envelope, which is optimal up to the last step: a radius
    isn't concave in n near its first certificate, so single steps would never begin there. Ties go to the lower index.
    """
    votes = {share.index: 0 for share in shares}
    hulls = {share.index: _envelope(share) for share in shares}
    steps = {index: pairwise(hull) for index, hull in hulls.items()}
    queue: list[tuple[float, int, int]] = []
    left = total

    def push(index: int) -> None:
        step = next(steps[index], None)
        if step is not None:
            (n, radius), (more, larger) = step
            heapq.heappush(queue, (-(larger - radius) / (more - n), index, more))

    for share in shares:
        push(share.index)
    while queue:
        _, index, more = heapq.heappop(queue)
        cost = more - votes[index]
        if cost > left:
            continue  # too expensive now, like this input's later steps; cheaper ones of others may still fit
        left -= cost
        votes[index] = more
        push(index)
    return votes


def _envelope(share: Share) -> list[tuple[int, float]]:
    """The corners of the smallest concave curve above (0, 0) and the points, as far as it rises."""
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for n, radius in zip(share.sizes, share.radii):
        if radius <= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (n, radius)):
            hull.pop()
        hull.append((n, radius))
    return hull


def _slope(a: tuple[int, float], b: tuple[int, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])
