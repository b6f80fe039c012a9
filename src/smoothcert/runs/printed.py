"""How far a log's printed radii may be from those that were certified."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from smoothcert.runs.statement import DataStatement

_LOG_ERROR = 1e-9  # more than the error of log10: a power of ten must not be taken for the number below it


@dataclass(frozen=True)
class Printed:
    """The most significant digits and decimals that any radius of a log has.

    Logs print a fixed number of either (the field's ``{:.3}``: three significant digits, zeros at the end left out)
    and round to nearest. Which of the two it was isn't known: the larger unit is taken.
    """

    digits: int
    decimals: int

    @classmethod
    def of(cls, radii: Iterable[str]) -> Printed:
        """From radii as they are printed."""
        digits = decimals = 0
        for text in radii:
            _, figures, exponent = Decimal(text).as_tuple()
            decimals = max(decimals, -int(exponent))
            if any(figures):
                digits = max(digits, len(figures))
        return cls(max(1, digits), decimals)

    @classmethod
    def stated(cls, data: DataStatement) -> Printed | None:
        """What a manifest's ``data`` says; None where it says nothing."""
        digits, decimals = data.radius_digits, data.radius_decimals
        return cls(digits, decimals) if isinstance(digits, int) and isinstance(decimals, int) else None

    def as_json(self) -> dict[str, int]:
        """For a manifest's ``data``."""
        return {"radius_digits": self.digits, "radius_decimals": self.decimals}

    def half_units(self, radii: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each printed radius, how far the certified one may be from it."""
        with np.errstate(divide="ignore"):
            leading = np.floor(np.log10(radii) + _LOG_ERROR)
        exponents = np.maximum(leading - self.digits + 1, -self.decimals)
        return np.asarray(0.5 * 10.0**exponents * (1 + 1e-12), dtype=np.float64)
