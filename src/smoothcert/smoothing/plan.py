"""The plan: the statistical statement of a certification."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field
from typing import Any

from smoothcert.bounds import BOUNDS, Bound, least_votes
from smoothcert.certificates import Certificate, certificate_for
from smoothcert.errors import check_count, check_probability
from smoothcert.noise import Noise
from smoothcert.sampling import Numerics
from smoothcert.sigma_search import SigmaSearch


class TooFewVotesWarning(UserWarning):
    """n is so small that not even a unanimous vote could succeed."""


@dataclass(frozen=True)
class CertifyPlan:
    """The statistical statement: change any field and a published number may change.

    ``n0`` votes choose the class, ``n`` fresh votes bound its probability at level ``alpha``. A ``search`` first
    chooses each input's own σ, by samples of its own; the certificate is then about the classifier frozen at it.
    """

    noise: Noise
    bound: str = "two-class"
    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)
    search: SigmaSearch | None = None

    def __post_init__(self) -> None:
        BOUNDS[self.bound]
        check_count("n0", self.n0)
        check_count("n", self.n)
        check_probability("alpha", self.alpha)
        check_count("seed", self.seed, least=0)

    @property
    def rule(self) -> Bound:
        """The bound by its name."""
        return BOUNDS[self.bound]

    @property
    def certificate(self) -> Certificate:
        """The theorem that belongs to the noise."""
        return certificate_for(self.noise)

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values; equal plans have equal JSON."""
        return {
            "noise": self.noise.name,
            "sigma": self.noise.sigma,
            "norm": self.certificate.norm,
            "bound": self.bound,
            "votes": self.rule.votes,
            "n0": self.n0,
            "n": self.n,
            "alpha": self.alpha,
            "seed": self.seed,
            **asdict(self.numerics),
            **({} if self.search is None else self.search.as_json() | {"stateful": False}),
        }

    def warn_if_hopeless(self) -> None:
        """Say so when no vote, however clear, could be certified."""
        least = least_votes(self.rule, self.alpha)
        if self.n < least:
            warnings.warn(
                f"CERTIFY can only abstain: n = {self.n} votes can't succeed at alpha = {self.alpha} with the "
                f"{self.bound} bound; the smallest n that could is {least}",
                TooFewVotesWarning,
                stacklevel=3,
            )
