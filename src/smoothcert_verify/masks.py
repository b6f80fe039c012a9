"""Masked categories beside Gaussian noise: the stated noise, and the theorem's table over d in intervals.

With v = β^d, a = (L − 1 + v)/v and b = min(1, U/v), the class holds after d changed categories while
v·(Φ(Φ⁻¹(a) − ρ) − Φ(Φ⁻¹(b) + ρ)) > 1 − v (docs/proofs-hybrid.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from smoothcert_verify.bounds import Pair
from smoothcert_verify.intervals import HALF, NEAR, ONE, ZERO, Interval, enclosed, quantile, upper_tail
from smoothcert_verify.reading import UnreadableError, size

MASKED = {"hybrid": "l2/sigma", "masks": "l0"}
"""Noises with masks, and the norm of the radius that their runs keep: ρ(0), and one more than the changes certified."""
_UNIT = 1 << 32
_MOST_CHANGES = 1 << 16
_FARTHEST = Decimal(15)
_STEPS = 80
_EXACT_POWERS = 64


@dataclass(frozen=True)
class Masks:
    """Masks with probability ``beta``, which ``categories`` values may have; ``numbers``: whether others have noise."""

    beta: Fraction
    categories: int
    numbers: bool

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> tuple[Masks, tuple[float, ...]]:
        """The masks of a plan, and σ of each number beside them; UnreadableError where it can't be right."""
        beta = Fraction(size(dict(plan), "beta"))
        if not beta < 1 or beta * _UNIT != int(beta * _UNIT):
            raise UnreadableError(f"beta = {plan['beta']!r}, which isn't a multiple of 2⁻³² between 0 and 1")
        if plan.get("noise") == "masks":
            return cls(beta, _MOST_CHANGES, numbers=False), ()
        sigmas, columns = plan.get("sigmas"), plan.get("columns")
        if not isinstance(sigmas, list) or not sigmas or not isinstance(columns, dict):
            raise UnreadableError("hybrid noise without its sigmas and columns")
        scales = tuple(size({"sigmas": sigma}, "sigmas") for sigma in sigmas)
        names, categories = columns.get("names"), columns.get("categories")
        if (
            not isinstance(names, list)
            or not isinstance(categories, dict)
            or not set(categories) <= set(map(str, names))
        ):
            raise UnreadableError("columns without names and categories")
        if len(names) != len(scales) + len(categories) or len(names) != plan.get("dimension"):
            raise UnreadableError(
                f"{len(names)} columns of which {len(categories)} are categories, with {len(scales)} sigmas and "
                f"dimension {plan.get('dimension')}"
            )
        mean = math.exp(math.fsum(map(math.log, scales)) / len(scales))
        if not math.isclose(size(dict(plan), "sigma"), mean, rel_tol=1e-9):
            raise UnreadableError(f"sigma = {plan['sigma']!r}, the geometric mean of its sigmas is {mean!r}")
        return cls(beta, len(categories), numbers=True), scales

    def radius(self, pair: Pair) -> Interval:
        """What a run keeps: ρ(0), or one more than the changes that are certified."""
        if self.numbers:
            return self.rho(pair, 0)
        return Interval.of(self.changes(pair) + 1)

    def changes(self, pair: Pair) -> int:
        """The most changes after which the class certainly holds where no number moves; −1 where none is certain."""
        if not self._ahead(pair, 0):
            return -1
        enough = int(math.log(0.5) / math.log(self.beta)) + 2  # v must be above ½
        low, high = 0, min(self.categories, enough) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._ahead(pair, middle) else (low, middle)
        return low

    def table(self, pair: Pair) -> list[Interval]:
        """ρ(0), ρ(1), … while they are certainly above 0."""
        return [self.rho(pair, changes) for changes in range(self.changes(pair) + 1)]

    def rho(self, pair: Pair, changes: int) -> Interval:
        """ρ(d), in units of σ; 0 where nothing is certain."""
        if not self._ahead(pair, changes):
            return ZERO
        ahead, behind, missing = self._inside(pair, changes)
        first, second = quantile(ahead), quantile(behind)
        gap = HALF * (first - second)
        if changes == 0:
            return gap

        def surplus(rho: Decimal) -> Interval:
            return _below(first - Interval.of(rho)) - _below(second + Interval.of(rho)) - missing

        guess = _guess(float(first.middle), float(second.middle), float(missing.middle))
        return enclosed(
            guess,
            max(guess, Decimal("1e-6")),
            lambda rho: surplus(rho).low >= 0,
            lambda rho: surplus(rho).high <= 0,
            Interval(Decimal(0), max(gap.high, Decimal(0))),
        )

    def _shared(self, changes: int) -> Interval:
        """v = β^d: all changed values are masked with that probability."""
        if changes <= _EXACT_POWERS:
            return Interval.of(self.beta**changes)
        return (Interval.of(changes) * Interval.of(self.beta).ln()).exp()

    def _ahead(self, pair: Pair, changes: int) -> bool:
        """Whether L − U > 2·(1 − v) is certain: ρ(d) is above 0 then."""
        v = self._shared(changes)
        return (pair.lower - pair.upper).low > (Interval.of(2) * (ONE - v)).high and pair.upper.high < v.low

    def _inside(self, pair: Pair, changes: int) -> tuple[Interval, Interval, Interval]:
        """a, b and (1 − v)/v."""
        v = self._shared(changes)
        ahead = (pair.lower - ONE + v) / v
        return ahead, (pair.upper / v).at_most(ONE), (ONE - v) / v


def _below(x: Interval) -> Interval:
    """Φ(x)."""
    return Interval(_below_point(x.low).low, _below_point(x.high).high)


def _below_point(x: Decimal) -> Interval:
    tail = upper_tail(abs(x)) if abs(x) <= _FARTHEST else Interval(Decimal(0), Decimal("1e-50"))
    return ONE - tail if x >= 0 else tail


def _guess(first: float, second: float, missing: float) -> Decimal:
    """The ρ at which Φ(first − ρ) − Φ(second + ρ) is ``missing``: by halving in floats, then a step of Newton's."""
    normal = NormalDist()
    low, high = 0.0, (first - second) / 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        ahead = normal.cdf(first - middle) - normal.cdf(second + middle) > missing
        low, high = (middle, high) if ahead else (low, middle)
    return NEAR.plus(Decimal(low))
