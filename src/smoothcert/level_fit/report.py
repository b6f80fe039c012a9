"""What a chooser is worth on inputs that were kept apart from its fit."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds import Bound, ClassBounds
from smoothcert.bounds.base import one_sided
from smoothcert.level_fit.votes import shrunk_share
from smoothcert.noise import Noise
from smoothcert.sigma_levels import median_level, reaches
from smoothcert.sigma_levels.median import combined_radius
from smoothcert.tally import Phase, Stream, Tally


@dataclass(frozen=True)
class LevelReport:
    """Mean radii of the label, as votes of a pilot show them: estimates, not certificates."""

    inputs: int
    fixed: tuple[float, ...]
    """At each level for all inputs."""
    chooser: float
    """Of the classifier whose level is the chooser's median: how far the median stays is counted."""
    homes: float
    """At the chooser's levels, if the median could be trusted to stay: what an unsure chooser costs is the rest."""
    ceiling: float
    """At each input's best level, which no chooser knows."""
    shares: tuple[float, ...]
    """Of the inputs, which level they get."""
    gain_error: float
    """Standard error of the gain."""

    @property
    def best(self) -> int:
        """The level that is best for all inputs."""
        return max(range(len(self.fixed)), key=self.fixed.__getitem__)

    @property
    def gain(self) -> float:
        """Over the best fixed level."""
        return self.chooser - self.fixed[self.best]

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> LevelReport:
        """The inverse of :meth:`as_json`."""
        listed: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**listed)


def reported(counts: NDArray[np.int64], radii: NDArray[np.float64], noise: Noise) -> LevelReport:
    """From the chooser's votes and the radii at every level, a row for each input; ``noise`` is the chooser's."""
    homes, combined = [], []
    for votes, own in zip(counts, radii):
        tally = Tally(Stream(0, 0, Phase.PILOT), 0, int(votes.sum()), tuple(int(count) for count in votes))
        home = median_level(tally)
        homes.append(home)
        reached = reaches(tally, home, noise, _SHARES, 0.5, 0.0)
        combined.append(combined_radius(reached, own.tolist()))
    found, fixed = np.array(combined), radii.mean(axis=0)
    gains = found - radii[:, fixed.argmax()]
    return LevelReport(
        len(radii),
        tuple(float(value) for value in fixed),
        float(found.mean()),
        float(radii[np.arange(len(radii)), homes].mean()),
        float(radii.max(axis=1).mean()),
        tuple(float(share) for share in np.bincount(homes, minlength=radii.shape[1]) / len(homes)),
        float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
    )


def _estimated(tally: Tally, chosen: int, _alpha: float) -> ClassBounds:
    return one_sided(float(shrunk_share(np.asarray(tally.counts[chosen]), tally.n)))


_SHARES = Bound("shares", "hard", False, "no bound: the shares themselves, for estimates", _estimated)
