"""Whether one record follows from its votes and the plan; of a log, which has no votes, whether it is possible."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from smoothcert_verify.bounds import BOUNDS, Pair, bounds_of, is_look
from smoothcert_verify.intervals import DOWN, UP, ZERO, Interval
from smoothcert_verify.masks import MASKED
from smoothcert_verify.noise import NORMS, Noise, read_scales, stated_noise
from smoothcert_verify.reading import RunError, UnreadableError
from smoothcert_verify.statement import MOST_VOTES, Plan, Statement
from smoothcert_verify.votes import SOFT_UNIT, StatedRecord, StatedSearch, Votes

ABSTAIN = -1
RELATIVE, OF_SIGMA = Decimal("1e-6"), Decimal("1e-7")
"""A radius may be smaller than the exact one by this: smoothcert rounds towards the smaller claim at every step, and
takes a bound with looks at a millionth less than its share of α."""
_SAME_SIGMA = 1e-9
_FLOATS = Decimal("1e-9")  # of a radius: logs are made in floats, by whatever version of a library
_MOST_FIGURES = 400
_MOST_SHOWN = 8
_MOST_DECIMALS_OF_ZERO = 9  # of finer prints, no radius that votes can certify becomes 0


@dataclass
class Judge:
    """Recomputes records of one run. ``classes`` is the number that the first votes have."""

    directory: Path
    plan: Plan
    found: Mapping[int, StatedSearch]
    allocation: Mapping[int, int] | None = None
    stated_distance: Fraction = Fraction(0)
    classes: int | None = None
    by_values: bool = False
    """Whether the number of a stream follows from the input's values, and is not the record's."""
    changes: Counter[int] = field(default_factory=Counter)
    """Of right answers, by the most changed categories that are certified."""
    _distances: dict[Noise, Interval] = field(default_factory=dict)

    def problems(self, record: StatedRecord) -> Iterator[str]:
        """Everything about a record that doesn't follow."""
        plan = self.plan
        # A memory answers an input on the very edge of a region with its class, and claims nothing around it.
        any_shape = plan.stateful or plan.unknown is not None
        stretched = any_shape or plan.diagonal or plan.search is not None
        yield from shape_problems(record, stretched, may_be_zero=any_shape)
        selection, estimation = record.selection, record.estimation
        if selection is None or estimation is None:
            yield "keeps no votes"
            return
        wrong = self._vote_problems(record, selection, estimation, plan.seed)
        yield from wrong
        if wrong or any_shape:
            return
        try:
            noise = self.noise_of(record)
            radius, volume = self.radii(selection.top, estimation, noise)
        except UnreadableError as error:
            yield str(error)
            return
        if noise.masks and record.predicted == record.label:
            self.changes[noise.masks.changes(self._pair(selection.top, estimation, noise))] += 1
        yield from answer_problems(record, selection.top, radius, volume if noise.diagonal else None, noise)

    def recomputes(self, record: StatedRecord, sound: bool) -> bool:
        """Whether the answer could be compared with the input's own votes.

        A memory's, if those are ``sound`` and allow it: their class, and no larger radius. None, if the theorem isn't
        known here.
        """
        if self.plan.unknown is not None:
            return False
        if not self.plan.stateful or record.predicted == ABSTAIN:
            return True
        if not sound or record.selection is None or record.estimation is None:
            return False
        try:
            radius, _ = self.radii(record.selection.top, record.estimation, self.noise_of(record))
        except UnreadableError:
            return False
        return record.predicted == record.selection.top and Decimal(record.radius) <= radius.low

    def radii(
        self, chosen: int, votes: Votes, noise: Noise, bound: str = "", alpha: Fraction | None = None
    ) -> tuple[Interval, Interval]:
        """The exact radius of the largest ball inside the region, and of the ball of its volume.

        ``bound`` and ``alpha`` are the plan's, if they aren't given.
        """
        extent = noise.extent(self._pair(chosen, votes, noise, bound, alpha))
        return extent * Interval.of(noise.least), extent * noise.mean

    def _pair(
        self, chosen: int, votes: Votes, noise: Noise, bound: str = "", alpha: Fraction | None = None
    ) -> Pair:
        pair = bounds_of(bound or self.plan.bound, votes, chosen, alpha or self.plan.alpha)
        return pair.after_paying(self._distance(noise)) if votes.n else pair

    def in_words(self) -> Iterator[str]:
        """What was recomputed beside the records' own radii."""
        if self.changes:
            shown, counts = range(min(max(self.changes), _MOST_SHOWN) + 1), self.changes.items()
            told = (f"{sum(n for d, n in counts if d >= least)} at d = {least}" for least in shown)
            yield f"answers that are right and certified for any d changed categories: {', '.join(told)}"

    def noise_of(self, record: StatedRecord) -> Noise:
        """The noise that a record's votes were cast under."""
        if self.plan.search is not None and not self.plan.diagonal:
            return self._searched(record)
        noise = self.plan_noise
        if noise.diagonal:
            _check_sigma(record, noise)
        elif record.sigma != self.plan.sigma:
            raise UnreadableError(f"σ = {record.sigma!r}, where the plan states {self.plan.sigma!r}")
        return noise

    @cached_property
    def plan_noise(self) -> Noise:
        """The noise that the plan states, with the scales in the file beside it where it has several."""
        plan = self.plan
        if not plan.diagonal:
            return stated_noise(plan.fields)
        return read_scales(self.directory / "sigmas.npy", plan.noise, plan.fields.get("sigmas_sha256"))

    def _searched(self, record: StatedRecord) -> Noise:
        if not (math.isfinite(record.sigma) and record.sigma > 0):
            raise UnreadableError(f"σ = {record.sigma!r} is of no noise")
        line, plain = self.found.get(record.index), Noise(self.plan.noise, (record.sigma,))
        if line is None:
            if self.plan.stateful and record.volume_radius is None:
                return plain  # a memory's run keeps no searches
            raise UnreadableError("sigma_search.jsonl has no line for it: its σ isn't accounted for")
        if line.sigma != record.sigma:
            raise UnreadableError(f"σ = {record.sigma!r}, where its search found {line.sigma!r}")
        if line.sigmas_sha256 is None:
            return plain
        if line.noise != f"diagonal-{self.plan.noise}":
            raise UnreadableError(f"its search found {line.noise} noise, the plan states {self.plan.noise}")
        folder = self.directory / "sigmas"
        if folder.is_symlink():
            raise RunError(f"{folder} can't be read: it is a link, and not followed")
        noise = read_scales(folder / f"{record.index}.npy", line.noise, line.sigmas_sha256)
        _check_sigma(record, noise)
        return noise

    def _distance(self, noise: Noise) -> Interval:
        """What the sampler's distance from the noise is at most, or as the plan states if that is more."""
        grid = self.plan.grid()
        if grid is None:
            return ZERO
        if noise not in self._distances:
            if noise.diagonal and len(noise.scales) != grid.dimension:
                raise UnreadableError(f"{len(noise.scales)} scales, the plan's dimension is {grid.dimension}")
            exact = grid.distance(noise)
            one_noise = self.plan.search is None and self.plan.levels is None
            stated = self.stated_distance if one_noise else Fraction(0)
            self._distances[noise] = Interval.of(max(exact, stated))
        return self._distances[noise]

    def _vote_problems(
        self, record: StatedRecord, selection: Votes, estimation: Votes, seed: int
    ) -> list[str]:
        kind, index = self.plan.kind.votes, selection.index if self.by_values else record.index
        return [
            *stream_problems(selection, "selection", index, seed, kind),
            *stream_problems(estimation, "estimation", index, seed, kind),
            *self._class_problems(record, selection, estimation),
            *self._number_problems(record, selection, estimation),
        ]

    def _class_problems(self, record: StatedRecord, selection: Votes, estimation: Votes) -> Iterator[str]:
        if self.classes is None:
            self.classes = len(selection.counts)
        for votes in (selection, estimation):
            if len(votes.counts) != self.classes:
                yield f"{votes.phase} votes for {len(votes.counts)} classes, others have {self.classes}"
        for name, value in (("label", record.label), ("class", record.predicted), ("base", record.base)):
            if value is not None and value >= self.classes:
                yield f"{name} {value}, where votes are for classes 0 to {self.classes - 1}"

    def _number_problems(self, record: StatedRecord, selection: Votes, estimation: Votes) -> Iterator[str]:
        plan, n = self.plan, estimation.n
        if selection.n != plan.n0:
            yield f"{selection.n} selection votes, the plan states n0 = {plan.n0}"
        if not plan.rules:
            if n != plan.n:
                yield f"{n} estimation votes, the plan states n = {plan.n}"
            return
        if record.stopped is None:
            yield "doesn't say why its voting ended"
        if self.allocation is not None:
            given = self.allocation.get(record.index)
            if n != given:
                yield f"{n} estimation votes, allocation.json gives it {given}"
            return
        gives_up = "wrong" in plan.rules and selection.top != record.label
        if gives_up != (n == 0):
            yield (
                f"{n} estimation votes for class {selection.top}, where the plan stops at classes other than the label "
                f"({record.label})"
                if "wrong" in plan.rules
                else "no estimation votes"
            )
        elif n and n != plan.n and not plan.sequential and "pilot" not in plan.rules:
            yield f"{n} estimation votes, the plan states n = {plan.n}"
        elif n > plan.n:
            yield f"{n} estimation votes, the plan allows {plan.n}"
        elif n and plan.kind.looks and not is_look(n):
            yield f"stopped at {n} votes, which is none of the bound's looks"


def stream_problems(votes: Votes, phase: str, index: int, seed: int, kind: str) -> Iterator[str]:
    """Votes that aren't the first of a stream, of this kind, or that can't be."""
    if votes.phase != phase:
        yield f"{votes.phase} votes in the place of {phase} votes"
    if votes.index != index:
        yield f"{phase} votes of input {votes.index}"
    if votes.seed != seed:
        yield f"{phase} votes of seed {votes.seed}, the plan's is {seed}"
    if votes.start != 0:
        yield f"{phase} votes from number {votes.start} of their stream on: the first are left out"
    if (votes.sums is not None) != (kind == "soft"):
        yield f"{'hard' if votes.sums is None else 'soft'} {phase} votes, where the plan states {kind} ones"
    yield from votes.impossible()


def shape_problems(record: StatedRecord, stretched: bool, may_be_zero: bool = False) -> Iterator[str]:
    """What is impossible, whatever the votes; a radius ``may_be_zero`` where it was rounded, or is a memory's."""
    if record.label < 0 or record.predicted < ABSTAIN or (record.base is not None and record.base < 0):
        yield f"label {record.label}, class {record.predicted}, base {record.base}: no such class"
    if record.abstained != int(record.predicted == ABSTAIN):
        yield f"class {record.predicted} marked as {'abstained' if record.abstained else 'not abstained'}"
    certified = record.predicted != ABSTAIN
    if record.radius < 0 or ((record.radius > 0) != certified and not (certified and may_be_zero)):
        yield f"class {record.predicted} with radius {record.radius!r}"
    if not (math.isfinite(record.sigma) and record.sigma > 0):
        yield f"σ = {record.sigma!r}"
    if record.volume_radius is not None and not stretched:
        yield "a volume radius, where the region is a ball"


def _check_sigma(record: StatedRecord, noise: Noise) -> None:
    mean = float(noise.mean.low)
    if not math.isclose(record.sigma, mean, rel_tol=_SAME_SIGMA):
        raise UnreadableError(f"σ = {record.sigma!r}, where the geometric mean of its scales is {mean!r}")


def answer_problems(
    record: StatedRecord, chosen: int, radius: Interval, volume: Interval | None, noise: Noise
) -> Iterator[str]:
    """An answer that isn't what the exact radius gives, or larger than it."""
    spare = OF_SIGMA * noise.mean.high
    if record.predicted == ABSTAIN:
        if radius.low > spare:
            yield f"abstains, where its votes certify class {chosen} with radius {_shown(radius)}"
        return
    if record.predicted != chosen:
        yield f"class {record.predicted}, where its selection votes chose {chosen}"
        return
    if radius.low <= 0:
        yield f"class {chosen} with radius {record.radius!r}, where its votes certify nothing"
        return
    yield from _size_problems("radius", record.radius, radius, spare)
    if volume is None and record.volume_radius is not None:
        yield "a volume radius, where the region is a ball"
    if volume is not None:
        if record.volume_radius is None:
            yield "no volume radius, where the region isn't a ball"
        else:
            yield from _size_problems("volume radius", record.volume_radius, volume, spare)


def _size_problems(name: str, stated: float, exact: Interval, spare: Decimal) -> Iterator[str]:
    if Decimal(stated) > exact.low:
        yield f"{name} {stated!r} is larger than its votes support, {_shown(exact)}"
    elif Decimal(stated) < exact.low - exact.low * RELATIVE - spare:
        yield f"{name} {stated!r} is smaller than the votes support, {_shown(exact)}"


def _shown(exact: Interval) -> str:
    """The exact number in 17 digits, cut off."""
    return f"{exact.low:.17g}" if exact.low.is_finite() else "without end"


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
        stated = (data.get(f"radius_{name}") for name in ("digits", "decimals"))
        figures = (n if type(n) is int and 0 <= n <= _MOST_FIGURES else None for n in stated)
        return cls(_extent(statement), *figures)

    def problems(self, record: StatedRecord) -> Iterator[str]:
        """What is impossible about a record: no larger radius than a unanimous vote's, but for how it is printed."""
        zero = self.decimals is not None and self.decimals <= _MOST_DECIMALS_OF_ZERO
        yield from shape_problems(record, stretched=True, may_be_zero=zero)
        if not math.isfinite(record.radius):
            yield f"radius {record.radius!r}"
        elif self.extent is not None and record.radius > 0 and 0 < record.sigma < math.inf:
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
    known = isinstance(noise, str) and noise in NORMS and isinstance(bound, str) and bound in BOUNDS
    if not known or noise in MASKED:
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
