"""What goes into a memory and what comes out: certificates, and answers with what they promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from smoothcert.regions import CertifiedRegion
from smoothcert.tally import ABSTAIN

Source = Literal["memory", "certified", "shrunk", "abstained"]

PROMISE = (
    "stateful: every question asked of this memory after this answer, at any input inside the region, is answered with "
    "this class, as long as the memory is complete; other orders of questions may give other answers"
)
NO_PROMISE = "stateful: nothing is promised about an input that was abstained from"
POINT_PROMISE = (
    "stateful: the class is promised for this very input only, which lies on a stored region's edge"
)


class Certified(Protocol):
    """What a certificate must say; :class:`smoothcert.smoothing.Certification` does."""

    @property
    def predicted(self) -> int:
        """The class, or ABSTAIN."""

    @property
    def region(self) -> CertifiedRegion | None:
        """The region around the input, None when abstained."""


@dataclass(frozen=True, eq=False)
class MemoryAnswer:
    """What the memory-enhanced classifier answers. ``record`` is the stored record that vouches for it.

    ``region`` is what may be claimed: every float64 input inside it will be answered ``predicted``. ``certified`` is
    the certificate that was at hand: it disagrees with the answer where a stored region overruled it.
    """

    predicted: int
    region: CertifiedRegion | None
    source: Source
    record: int | None
    certified: Certified | None = None
    stateful: Literal[True] = True

    @property
    def abstained(self) -> bool:
        """Whether there is no answer."""
        return self.predicted == ABSTAIN

    @property
    def radius(self) -> float:
        """Radius of the region, or of the largest ball in it; 0 without one."""
        return 0.0 if self.region is None else self.region.inscribed_radius

    @property
    def volume_radius(self) -> float:
        """Radius of the ball of the region's volume, 0 without one."""
        return 0.0 if self.region is None else self.region.volume_radius

    @property
    def promise(self) -> str:
        """What the answer promises."""
        if self.abstained:
            return NO_PROMISE
        return POINT_PROMISE if self.region is None else PROMISE
