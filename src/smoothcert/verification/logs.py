"""Records of a log, which keeps no votes: what can be said of its radii all the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from smoothcert.verification.class_bounds import BOUNDS, bounds_of, is_look
from smoothcert.verification.intervals import DOWN, UP, Interval
from smoothcert.verification.noise import NORMS, Noise
from smoothcert.verification.reading import StatedRecord
from smoothcert.verification.records import shape_problems
from smoothcert.verification.statement import MOST_VOTES, Statement
from smoothcert.verification.votes import SOFT_UNIT, Votes

_FLOATS = Decimal("1e-9")  # of a radius: logs are made in floats, by whatever version of a library
_MOST_FIGURES = 400
_MOST_DECIMALS_OF_ZERO = 9  # of finer prints, no radius that votes can certify becomes 0


@dataclass(frozen=True)
class Log:
    """What a log's statement says about its radii.

    ``extent`` is how many σ a unanimous vote reaches, None where noise, bound, n and α aren't all stated. Radii are
    printed with ``digits`` and ``decimals`` at most, None where it isn't stated.
    """

    extent: Interval | None
    digits: int | None
    decimals: int | None

    @classmethod
    def of(cls, statement: Statement) -> Log:
        """Of an imported run."""
        data = statement.data
        return cls(
            _extent(statement), *(_figures(data.get(f"radius_{name}")) for name in ("digits", "decimals"))
        )

    def problems(self, record: StatedRecord) -> Iterator[str]:
        """What is impossible about a record: no larger radius than a unanimous vote's, but for how it is printed."""
        zero = self.decimals is not None and self.decimals <= _MOST_DECIMALS_OF_ZERO
        yield from shape_problems(record, stretched=True, may_be_zero=zero)
        if not math.isfinite(record.radius):
            yield f"radius {record.radius!r}"
        elif (
            self.extent is not None and record.radius > 0 and math.isfinite(record.sigma) and record.sigma > 0
        ):
            most = (self.extent * Interval.of(record.sigma)).high
            if self._at_least(record.radius) > UP.multiply(most, 1 + _FLOATS):
                yield (
                    f"radius {record.radius!r}, where the noise, n, alpha and bound that are stated allow "
                    f"{most:.6g} at most"
                )

    def _at_least(self, radius: float) -> Decimal:
        """The least radius that is printed like this: half a unit less, digits or decimals, whichever is coarser."""
        text = Decimal(repr(radius)).normalize()
        _, figures, exponent = text.as_tuple()
        assert isinstance(exponent, int)
        digits, decimals = max(len(figures), self.digits or 0), max(-exponent, self.decimals or 0)
        unit = max(text.adjusted() - digits + 1, -decimals)
        return DOWN.subtract(text, Decimal((0, (5,), unit - 1)))


def _extent(statement: Statement) -> Interval | None:
    plan = statement.fields["plan"]
    noise, bound, n, alpha = (plan.get(name) for name in ("noise", "bound", "n", "alpha"))
    if not isinstance(noise, str) or noise not in NORMS or not isinstance(bound, str) or bound not in BOUNDS:
        return None
    if type(n) is not int or not 1 <= n <= MOST_VOTES or type(alpha) is not float or not 0 < alpha < 1:
        return None
    if BOUNDS[bound].looks and (n := _last_look(n)) is None:
        return None
    soft = (n * SOFT_UNIT, 0) if BOUNDS[bound].votes == "soft" else None
    unanimous = Votes(0, 0, "estimation", 0, (n, 0), soft, soft)
    return Noise(noise, (1.0,)).extent(bounds_of(bound, unanimous, 0, Fraction(alpha)))


def _last_look(n: int) -> int | None:
    """The largest number of votes up to n at which a bound with looks may be evaluated."""
    rounded = (int(100 * 10 ** (k / 8) + 0.5) for k in range(80))
    return max((look for look in rounded if look <= n and is_look(look)), default=None)


def _figures(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_FIGURES else None
