"""The plan: the statistical statement of a certification."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import BOUNDS, Bound, ClassBounds
from smoothcert.bounds.fixed import least_votes
from smoothcert.errors import InvalidValueError, SmoothcertError, check_count, check_probability, plain_int
from smoothcert.knobs import knob
from smoothcert.models.numerics import AUTO_DTYPE, SFC64, Numerics
from smoothcert.perturb.base import NOISES, Isotropic, Perturbation, Theorem
from smoothcert.perturb.grid import Grid
from smoothcert.registry import suggesting_fields
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.statement import PlanStatement
from smoothcert.sigma_levels import SigmaLevels
from smoothcert.smoothing.search.base import SEARCHES, SigmaSearch
from smoothcert.smoothing.stopping.base import Budget, Stop, StopRule, budget_among, parse_stops, stop_rules
from smoothcert.tally import STREAM_VERSION, Phase, Stream, Tally

AUTO = "auto"
FIXED_BOUND, ANYTIME_BOUND = "top-two", "mixture-top-two"
"""What ``auto`` stands for: with a number of votes fixed in advance, and where the votes may end the voting."""
_FORMER_BOUNDS = ("two-class", "mixture-two-class")  # what it stood for before

_MINIMUM_ALPHA = 1e-200  # far below it, scipy's inverse beta function errs to the wrong side


class TooFewVotesWarning(UserWarning):
    """n is so small that not even a unanimous vote could succeed."""


@suggesting_fields
@dataclass(frozen=True, repr=False)
class CertifyPlan:
    """The statistical statement: change any field and a published number may change.

    With a ``search`` for each input's own σ, the certificate is about the classifier frozen at it. ``stop`` takes texts
    such as ``decide:0.5`` and ``pilot:1%``, or the rules themselves (:mod:`smoothcert.smoothing.stopping`); rules that
    read the estimation votes need a bound that allows it: ``auto`` takes one, fixed-n bounds are rejected.

    Noise is drawn on a grid (:mod:`smoothcert.perturb.grid`) that contains the multiples of 1/``levels``; scales may
    be rounded down a little where they are many. A ``seed`` of None is chosen when it is first needed: from the
    operating system, or 0 where a data set is certified.
    """

    noise: Perturbation
    """What is added to an input."""
    bound: str = AUTO
    """The confidence bound by name; ``auto`` takes top-two, or mixture-top-two where votes may end the voting."""
    n0: int = knob(100, "votes that choose the class")
    n: int = knob(100_000, "fresh votes that bound its probability, at most")
    alpha: float = knob(0.001, "probability that a certificate is wrong")
    seed: int | None = None
    """Names the random streams; None until it is chosen."""
    numerics: Numerics = field(default_factory=Numerics)
    """Type, route and shape in which the model sees samples."""
    search: SigmaSearch | None = None
    """What chooses each input's own σ."""
    stop: Iterable[Stop | str] = ()
    """Rules that end an input's voting early, and budgets."""
    sigma_levels: SigmaLevels | None = None
    """The levels among which a chooser gives each point its σ: one classifier, for a LevelledClassifier."""
    levels: int | None = knob(
        None,
        "inputs are multiples of 1/Q: noise is drawn on that grid, or a finer one (default: from the data; 255 for "
        "8-bit pictures)",
    )
    dimension: int | None = None
    """How many numbers of an input have noise; None until the model is prepared."""
    stream: int = STREAM_VERSION
    """Version of the sampler."""

    def __post_init__(self) -> None:
        for name in ("n0", "n", "seed"):
            object.__setattr__(self, name, plain_int(getattr(self, name)))
        check_count("n0", self.n0)
        check_count("n", self.n)
        object.__setattr__(self, "stop", parse_stops(self.stop))
        if self.bound == AUTO:
            object.__setattr__(self, "bound", ANYTIME_BOUND if self.sequential else FIXED_BOUND)
        self.confidence_bound.check_look(self.n)
        self._check_bound_allows_stopping()
        object.__setattr__(self, "alpha", check_probability("alpha", self.alpha))
        if self.alpha < _MINIMUM_ALPHA:
            raise InvalidValueError(f"alpha must be at least {_MINIMUM_ALPHA:g}, got {self.alpha:g}")
        if self.seed is not None:
            check_count("seed", self.seed, least=0)
        if self.on_grid:
            object.__setattr__(self, "noise", self.noise.drawable(self.grid))
        if self.search is not None and not isinstance(self.noise, Isotropic):
            raise InvalidValueError(
                f"a sigma search looks for one sigma, which {self.noise.name} noise doesn't have: leave the search "
                "out, or give noise of one scale"
            )
        if self.sigma_levels is not None:
            self._check_levels(self.sigma_levels)

    def __repr__(self) -> str:
        first = f"{self.noise!r}, bound={self.bound!r}, n0={self.n0}, n={self.n}, alpha={self.alpha:g}"
        others = ((each, getattr(self, each.name)) for each in fields(self)[5:])
        told = [f"{each.name}={v!r}" for each, v in others if v not in (each.default, Numerics())]
        return f"CertifyPlan({', '.join([first, *told])})"

    @property
    def confidence_bound(self) -> Bound:
        """The bound by its name."""
        return BOUNDS[self.bound]

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Stop rules and budget in the order given; none means exactly n votes."""
        assert isinstance(self.stop, tuple)
        return self.stop

    @property
    def stop_rules(self) -> tuple[StopRule, ...]:
        """The rules that may end an input's voting."""
        return stop_rules(self.stops)

    @property
    def budget(self) -> Budget:
        """What settles how many estimation votes an input gets at most."""
        return budget_among(self.stops)

    @property
    def sequential(self) -> bool:
        """Whether the estimation votes themselves may end the voting."""
        return any(rule.sees == "estimation" for rule in self.stop_rules)

    @property
    def most_votes(self) -> int:
        """The most estimation votes that one input can get."""
        return self.budget.most_votes(self.n)

    @property
    def on_grid(self) -> bool:
        """Whether votes are drawn on a grid; those of runs made before there were any aren't."""
        return self.stream >= STREAM_VERSION

    @property
    def grid(self) -> Grid:
        """The grid that inputs and noise lie on."""
        return Grid.of(self.levels)

    @property
    def coarsest_noise(self) -> Perturbation:
        """The noise, or of several levels' and their chooser's the one whose grid is in all the others' grids."""
        if self.sigma_levels is None:
            return self.noise
        noises = [NOISES[self.noise.name](sigma) for sigma in self.sigma_levels.all_sigmas]
        return min(noises, key=lambda noise: self.grid.steps_per_unit(noise.sigma))

    @cached_property
    def sampler_error(self) -> float:
        """How far probabilities under what is drawn may be from those under the true noise: bounds pay it."""
        if not self.on_grid:
            return 0.0
        if self.dimension is None:
            raise InvalidValueError("the plan must know the inputs' dimension: prepare it for their shape")
        return self.noise.error(self.grid, self.dimension)

    @property
    def known_seed(self) -> int:
        """The seed of a plan that has one."""
        if self.seed is None:
            raise InvalidValueError("the plan has no seed: give seed=, or ask a SmoothedClassifier")
        return self.seed

    def votes_of(self, index: int, phase: Phase) -> Stream:
        """The stream of an input's votes."""
        return Stream(self.known_seed, index, phase)

    def for_shape(self, shape: tuple[int, ...]) -> CertifyPlan:
        """The plan for inputs of this shape, where it doesn't say."""
        if self.dimension is None and self.on_grid:
            return replace(self, dimension=math.prod(shape))
        return self

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that the noise, or a dimension settled before, doesn't fit."""
        self.noise.check_shape(shape)
        if self.dimension is not None and self.dimension != math.prod(shape):
            raise InvalidValueError(
                f"the plan is for inputs of dimension {self.dimension}, these have {math.prod(shape)} (shape {shape}): "
                "give the plan as it was before it was prepared for others, or replace(plan, dimension=None)"
            )

    @property
    def certificate(self) -> Theorem:
        """The theorem that belongs to the noise."""
        return self.noise.certificate

    def as_json(self) -> dict[str, Any]:
        """Every field in plain values; equal plans have equal JSON."""
        return {
            **self.noise.describe(),
            "norm": self.certificate.norm,
            "bound": self.bound,
            "votes": self.confidence_bound.votes,
            "n0": self.n0,
            "n": self.n,
            "alpha": self.alpha,
            "seed": self.seed,
            **(self._stated_grid() if self.on_grid else {}),
            **self.numerics.as_json(),
            **({"stop": [each.text for each in self.stops]} if self.stops else {}),
            **({} if self.search is None else self.search.as_json() | {"stateful": False}),
            **({} if self.sigma_levels is None else self.sigma_levels.as_json(self.alpha)),
        }

    def point(self, x: ArrayLike) -> NDArray[np.float64]:
        """The point that votes on an input are about: the grid point next to it, or itself where there is no grid.

        With σ levels all stages have it in common.
        """
        if not self.on_grid:
            return np.asarray(x, dtype=np.float64)
        return self.coarsest_noise.place(x, self.grid, 0.0).center

    def rounding_of(self, levels: int | None) -> float:
        """What radii must give up to speak of *any* input: a cell's diagonal, where inputs may lie off the grid.

        ``levels``: what is known of the inputs. 0 where multiples of 1/levels are points of the grid.
        """
        if not self.on_grid:
            return 0.0
        return self.coarsest_noise.lost_off_grid(self.grid, self.dimension or 1, levels)

    def allows_votes(self, n: int) -> bool:
        """Whether an input can have got n estimation votes; where they are fixed in advance, only n or none."""
        if not self.sequential and not self.budget.pilot_votes:
            return n == self.n or (n == 0 and bool(self.stop_rules))
        return 0 <= n <= self.most_votes

    def bounds_of(self, tally: Tally, chosen: int) -> ClassBounds:
        """What the plan's bound says of estimation votes, less the sampler's error; of none it says nothing."""
        if not tally.n:
            return ClassBounds(0.0, 1.0)
        return self.confidence_bound(tally, chosen, self.alpha).paying(self.sampler_error)

    def _stated_grid(self) -> dict[str, Any]:
        grid = {"stream": self.stream, "levels": self.grid.levels, "cells_per_sigma": self.grid.cells}
        if self.dimension is None:
            return grid
        return grid | {"dimension": self.dimension, "sampler_error": self.sampler_error}

    def _check_levels(self, levels: SigmaLevels) -> None:
        if not isinstance(self.noise, Isotropic) or self.noise.sigma != levels.sigmas[-1]:
            raise InvalidValueError(
                f"a plan with sigma levels has noise of one scale, that of its largest level, {levels.sigmas[-1]:g}; "
                f"got {self.noise!r}"
            )
        if self.search is not None:
            raise InvalidValueError("sigma levels choose each point's σ themselves: leave the search out")
        if self.budget.spreads:
            raise InvalidValueError(f"{self.budget.text} and sigma levels are mutually exclusive")
        if self.confidence_bound.votes == "soft":
            raise InvalidValueError(
                f"sigma levels are certified by hard votes, and {self.bound} is about soft ones: choose {FIXED_BOUND}"
            )

    def _check_bound_allows_stopping(self) -> None:
        bound, budget = self.confidence_bound, self.budget
        for rule in self.stop_rules:
            if rule.sees == "estimation" and not bound.anytime:
                fitting = [name for name in BOUNDS if BOUNDS[name].anytime and not BOUNDS[name].superseded]
                raise InvalidValueError(
                    f"the {self.bound} bound holds for a number of votes fixed in advance, but {rule.text} stops by "
                    f"looking at them: leave the bound out ({ANYTIME_BOUND} is taken), choose one of "
                    f"{', '.join(fitting)}, or stop by pilot:1%"
                )
        if budget.pilot_votes and (bound.next_look is not None or bound.votes == "soft"):
            raise InvalidValueError(
                f"{budget.text} chooses a number of hard votes that the {self.bound} bound can't be evaluated at: "
                f"choose {FIXED_BOUND} or clopper-pearson"
            )
        if budget.spreads and self.search is not None:
            raise InvalidValueError(
                f"{budget.text} excludes a sigma search: leave it out, or stop by pilot:1%"
            )

    @classmethod
    def from_statement(cls, plan: PlanStatement, directory: Path) -> CertifyPlan:
        """The plan that a run states, the inverse of :meth:`as_json`; RunError names what it doesn't state.

        ``directory`` is the run's: it holds the scales of noise that has one for each coordinate.
        """
        search, levels = plan.sigma_search, plan.sigma_levels
        # A search that isn't registered here has done its work: what it found is in the records.
        known = search is not None and search in SEARCHES
        return cls(
            plan.noise_in(directory),
            plan.known(PlanStatement.bound),
            plan.known(PlanStatement.n0),
            plan.known(PlanStatement.n),
            plan.known(PlanStatement.alpha),
            plan.known(PlanStatement.seed),
            _numerics_of(plan),
            SEARCHES[str(search)].from_knobs(plan.search_options) if known else None,
            plan.stops,
            None if levels is None else SigmaLevels.from_json(levels, plan.known(PlanStatement.chooser)),
            **_grid_of(plan),
        )

    def warn_if_hopeless(self) -> None:
        """Say so when no vote, however clear, could be certified."""
        smallest = least_votes(self.confidence_bound, self.alpha)
        if self.n < smallest:
            warnings.warn(
                f"CERTIFY can only abstain: n = {self.n} votes can't succeed at alpha = {self.alpha} with the "
                f"{self.bound} bound; the smallest n that could is {smallest}",
                TooFewVotesWarning,
                stacklevel=3,
            )


def _stated_in(directory: Path) -> PlanStatement | None:
    try:
        return Manifest.load(directory).plan
    except SmoothcertError:  # opening the run says what is wrong with it
        return None


def former_default(directory: Path) -> str | None:
    """The bound that the run in a directory was begun with, if it was what ``auto`` stood for then."""
    plan = _stated_in(directory)
    return plan.bound if plan is not None and plan.bound in _FORMER_BOUNDS else None


def stated_numerics(directory: Path) -> Numerics | None:
    """The numerics that the run in a directory has settled; None where there is none, or none that can be read."""
    plan = _stated_in(directory)
    return None if plan is None else _numerics_of(plan)


def _numerics_of(plan: PlanStatement) -> Numerics:
    return Numerics(
        plan.dtype or AUTO_DTYPE, plan.route or "auto", plan.chunk, plan.block, plan.generator or SFC64
    )


def _grid_of(plan: PlanStatement) -> dict[str, Any]:
    """The fields that a stated grid gives a plan; runs made before there were grids state none."""
    stream = plan.stream or 1
    if stream == 1:
        return {"stream": 1}
    if stream != STREAM_VERSION:
        raise InvalidValueError(
            f"the votes are of stream version {stream}, and this is version {STREAM_VERSION}: use the smoothcert that "
            "made them"
        )
    levels = None if Grid.of(None).cells == plan.cells_per_sigma else plan.known(PlanStatement.levels)
    return {"stream": stream, "levels": levels, "dimension": plan.known(PlanStatement.dimension)}
