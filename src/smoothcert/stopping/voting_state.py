"""The state of the voting on one input: all that a rule may look at when it is asked whether to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy.special import ndtri

from smoothcert.bounds import clopper_pearson_lower, mixture_upper
from smoothcert.tally import Tally

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
        left = self.most_votes - self.votes
        if left <= 0:
            return self.radius
        have = self.tally.counts[self.chosen]
        share = mixture_upper(have, self.votes, futility)
        luck = -float(ndtri(futility)) * math.sqrt(left * share * (1.0 - share))
        return self.radius_of(self._continued(min(left, math.ceil(left * share + luck)), left, futility))

    def expected_radius(self) -> float:
        """The radius at the full budget if votes go on as they were."""
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
