"""The noise a run states, its sampler's distance from it, and the theorem that turns bounds into a radius."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from smoothcert_verify.bounds import Pair
from smoothcert_verify.intervals import DOWN, HALF, ONE, UP, ZERO, Interval, quantile
from smoothcert_verify.masks import MASKED, Masks
from smoothcert_verify.reading import UnreadableError, read_vector, size

NORMS = {"gaussian": "l2", "uniform": "l1", "diagonal-gaussian": "l2", "diagonal-uniform": "l1", **MASKED}
INFINITE = Interval(Decimal("Infinity"), Decimal("Infinity"))

_BITS = 256
_FINE_UNTIL = 2048  # steps of the inputs' own grid in σ, up to which that grid isn't coarsened
_CELLS = 10  # the sampler's table reaches this many σ to each side
_ERROR_OF_A_CELL = Fraction(1, 2**58)


@dataclass(frozen=True)
class Noise:
    """Noise of one kind; ``scales`` holds σ, or one for each coordinate."""

    kind: str
    scales: tuple[float, ...]
    masks: Masks | None = None
    """Masks beside it; radii are then in units of σ."""

    @property
    def diagonal(self) -> bool:
        """Whether each coordinate has a scale of its own."""
        return self.kind.startswith("diagonal-")

    @cached_property
    def least(self) -> float:
        """The smallest σ."""
        return 1.0 if self.masks else min(self.scales)

    @cached_property
    def mean(self) -> Interval:
        """The geometric mean of the σ."""
        if self.masks:
            return ONE
        if min(self.scales) == max(self.scales):
            return Interval.of(self.scales[0])
        return (_log_of_product(self.scales) / Interval.of(len(self.scales))).exp()

    def extent(self, pair: Pair) -> Interval:
        """How far the certified region reaches, in units of σ; not above 0 where the classes aren't separated.

        ½(Φ⁻¹(L) − Φ⁻¹(U)) for Gaussian noise (Cohen et al. 2019), √3(L − U) for uniform noise on ±√3σ (Yang et al.
        2020).
        """
        if pair.lower.low <= pair.upper.high:
            return ZERO
        if self.masks:
            return self.masks.radius(pair)
        if self.kind.endswith("uniform"):
            return Interval.of(3).sqrt() * (pair.lower - pair.upper)
        if pair.upper.high <= 0:
            return INFINITE
        return HALF * (quantile(pair.lower) - quantile(pair.upper))


@dataclass(frozen=True)
class Grid:
    """How a sampler of version 2 draws: inputs on multiples of 1/``levels``, at least ``cells`` steps to a σ."""

    levels: int
    cells: int
    dimension: int

    def distance(self, noise: Noise) -> Fraction:
        """The total variation between what is drawn and the true noise on that grid: at most this."""
        if not noise.diagonal and not noise.masks:
            return self.dimension * self._term(noise.scales[0])
        return sum((times * self._term(sigma) for sigma, times in Counter(noise.scales).items()), Fraction(0))

    def _term(self, sigma: float) -> Fraction:
        """One coordinate's share: (2⌈10ρ⌉ + 3)·2⁻⁵⁸, ρ being the steps to a σ."""
        return (2 * math.ceil(_CELLS * self._steps(sigma)) + 3) * _ERROR_OF_A_CELL

    def _steps(self, sigma: float) -> Fraction:
        """ρ = σ·levels·2ᵐ with the smallest m for which it is at least ``cells``."""
        steps = Fraction(sigma) * self.levels
        if steps >= self.cells and steps <= _FINE_UNTIL:
            return steps
        while steps < self.cells:
            steps *= 2
        while steps / 2 >= self.cells and Fraction(sigma) * self.levels > _FINE_UNTIL:
            steps /= 2
        return steps


def stated_noise(plan: Mapping[str, Any]) -> Noise:
    """The noise of a plan that states all of it; UnreadableError where that can't be right."""
    kind = str(plan.get("noise"))
    if kind not in MASKED:
        return Noise(kind, (size(dict(plan), "sigma"),))
    masks, scales = Masks.stated(plan)
    return Noise(kind, scales, masks)


def read_scales(path: Path, kind: str, stated_sha256: object) -> Noise:
    """Noise with the scales in a .npy file; UnreadableError where it isn't the vector that is stated."""
    scales, sha256 = read_vector(path)
    if sha256 != stated_sha256:
        raise UnreadableError(f"{path.name} isn't the vector that is stated: its SHA-256 is {sha256[:12]}…")
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise UnreadableError(f"{path.name} holds scales that aren't positive and finite")
    return Noise(kind, scales)


def _log_of_product(values: Iterable[float]) -> Interval:
    """Ln of a product of positive floats: whole numbers of 256 bits, cut off downwards and upwards."""
    low = high = 1 << _BITS
    power = -_BITS
    for value in values:
        top, bottom = value.as_integer_ratio()
        low, high = low * top, high * top
        extra = max(0, low.bit_length() - _BITS)
        low, high = low >> extra, -(-high >> extra)
        power += extra - (bottom.bit_length() - 1)
    rest = Interval(DOWN.plus(Decimal(low)), UP.plus(Decimal(high)))
    return rest.ln() + Interval.of(power) * Interval.of(2).ln()
