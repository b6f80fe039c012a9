"""What a plan states of σ levels; what makes, decides and fits them is in :mod:`smoothcert.experimental.levels`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from smoothcert.errors import InvalidValueError, check_count, check_positive
from smoothcert.models.numerics import Numerics
from smoothcert.rounding import down

CHOOSER_PART = 32
"""The chooser's bounds get α/32, those of the levels' classes the rest.

As for the rival of ``top-two``: a bound's distance grows with √ln(1/α) only, and where the chooser is sure, its reach
is larger than the radius anyway. A power of two, because α/32 is then exact.
"""

CHOOSER_BOUND = "mixture"
"""It holds whenever voting stops: choosers vote until they reach as far as the levels' radii, and no longer."""

_MOST_LEVELS = 64


def class_alpha(alpha: float, constant: bool) -> float:
    """The part of α that a class's bound gets: all of it where the chooser is constant."""
    return alpha if constant else down(alpha - alpha / CHOOSER_PART)


@dataclass(frozen=True)
class SigmaLevels:
    """Levels σ₁ < … < σ_m, and how the chooser is smoothed: ``chooser_n0`` votes under noise of ``chooser_sigma`` find
    the likeliest level, and at most ``chooser_n`` others bound how likely the others are.

    A ``constant`` chooser has no votes: it names the level of every input. ``chooser_sha256`` and ``chooser_numerics``
    are settled when the chooser is prepared.
    """

    sigmas: tuple[float, ...]
    """In increasing order."""
    chooser_sigma: float | None = None
    """Standard deviation of the chooser's noise; None for a constant one."""
    chooser_n0: int = 100
    """Votes that choose the level that is looked at first."""
    chooser_n: int = 100_000
    """Fresh votes that bound the probabilities of levels, at most."""
    constant: int | None = None
    """The level of every input, where the chooser is constant."""
    chooser_name: str | None = None
    """What the chooser is called."""
    chooser_sha256: str | None = None
    """Of its function, as a model's."""
    chooser_numerics: Numerics | None = None
    """Type, route and shape in which it sees samples."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", tuple(map(float, self.sigmas)))
        for sigma in self.sigmas:
            check_positive("a sigma level", sigma)
        if not 1 <= len(self.sigmas) <= _MOST_LEVELS or any(a >= b for a, b in pairwise(self.sigmas)):
            got = ", ".join(f"{sigma:g}" for sigma in self.sigmas)
            raise InvalidValueError(f"sigma levels must be 1 to {_MOST_LEVELS} increasing numbers, got {got}")
        if self.constant is not None:
            if type(self.constant) is not int or not 0 <= self.constant < len(self.sigmas):
                raise InvalidValueError(
                    f"constant must be a level, 0 to {len(self.sigmas) - 1}, got {self.constant}"
                )
            return
        if len(self.sigmas) < 2:
            raise InvalidValueError("a chooser needs two levels or more; with one level, give constant=0")
        if self.chooser_sigma is not None:
            object.__setattr__(self, "chooser_sigma", check_positive("chooser_sigma", self.chooser_sigma))
        check_count("chooser_n0", self.chooser_n0)
        check_count("chooser_n", self.chooser_n)

    @property
    def noise_sigma(self) -> float:
        """Standard deviation of the chooser's noise; the largest level unless another is given."""
        return self.sigmas[-1] if self.chooser_sigma is None else self.chooser_sigma

    @property
    def all_sigmas(self) -> tuple[float, ...]:
        """Of every noise that is drawn: the levels' and the chooser's, or that of the one level of a constant one."""
        return (*self.sigmas, self.noise_sigma) if self.constant is None else (self.sigmas[self.constant],)

    def chooser_alpha(self, alpha: float) -> float:
        """The chooser's part of α."""
        return alpha / CHOOSER_PART

    def level_alpha(self, alpha: float) -> float:
        """What is left of α for the classes: each level has all of it (docs/guarantees.md)."""
        return class_alpha(alpha, self.constant is not None)

    def as_json(self, alpha: float) -> dict[str, Any]:
        """The fields that a plan states."""
        if self.constant is not None:
            return {"sigma_levels": list(self.sigmas), "chooser": {"constant": self.constant}}
        chooser: dict[str, Any] = {
            "name": self.chooser_name,
            "sha256": self.chooser_sha256,
            "sigma": self.noise_sigma,
            "n0": self.chooser_n0,
            "n": self.chooser_n,
            "bound": CHOOSER_BOUND,
            "alpha": self.chooser_alpha(alpha),
        }
        if self.chooser_numerics is not None:
            chooser |= self.chooser_numerics.as_json()
        return {"sigma_levels": list(self.sigmas), "chooser": chooser}

    @classmethod
    def from_json(cls, sigmas: list[float], chooser: Mapping[str, Any]) -> SigmaLevels:
        """The inverse of :meth:`as_json`; InvalidValueError for what isn't."""
        if "constant" in chooser:
            return cls(tuple(sigmas), constant=chooser["constant"])
        try:
            numerics = Numerics.from_json(chooser) if "dtype" in chooser else None
            votes = float(chooser["sigma"]), chooser["n0"], chooser["n"]
            return cls(tuple(sigmas), *votes, None, chooser.get("name"), chooser.get("sha256"), numerics)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValueError(f"the plan's chooser can't be understood ({error})") from None
