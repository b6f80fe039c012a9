"""Searches for the σ of one input: a registry of frozen dataclasses, each with one method over a batch.

A search looks at samples of its own streams only (:class:`Phase.SEARCH`), and its answer is fixed before the first
certifying vote is drawn: to those votes σ*ₓ is a constant, and the certificate at it holds as at any other σ.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.bounds.base import Bound, VoteKind
from smoothcert.engine.execution import Execution
from smoothcert.engine.schedule import VoteRequest
from smoothcert.errors import InvalidValueError
from smoothcert.knobs import from_mapping, knob, knobs_of, plain_value, written, written_values
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.grid import Grid
from smoothcert.registry import Registry, unknown_name
from smoothcert.runs.side_files import SearchResult
from smoothcert.tally import SOFT_UNIT

if TYPE_CHECKING:
    from smoothcert.engine.passes import Passes
    from smoothcert.engine.samples import Wave
    from smoothcert.models.base import BaseClassifier, Prepared
    from smoothcert.models.outputs import Ballots

R = TypeVar("R")
Array = NDArray[np.float64]

Numbered = tuple[int, NDArray[np.generic]]
"""An input and its index."""

Evaluations = Callable[[int], None]
"""Called with the number of network evaluations just done."""

_NEEDS_GRADIENTS = ("this sigma search", "use 'ladder' or 'grid', which only count votes")
_SEARCHED_TOGETHER = 128  # inputs of one batch; it doesn't change what is found


@dataclass(frozen=True)
class Counts:
    """``n`` votes at each of ``sigmas``: a row of class counts for each; for soft votes sums of probabilities."""

    sigmas: list[float]
    n: int
    classes: Array

    @classmethod
    def of(cls, request: VoteRequest, ballots: Ballots, classes: int) -> Counts:
        """Those of a request with equally many rows at each σ."""
        sigmas = list(dict.fromkeys(request.sigmas.tolist()))
        rows = []
        for sigma in sigmas:
            here = request.sigmas == sigma
            if ballots.probabilities is None:
                rows.append(np.bincount(ballots.labels[here], minlength=classes).astype(np.float64))
            else:
                rows.append(ballots.probabilities[here].sum(0) / SOFT_UNIT)
        return cls(sigmas, len(request) // len(sigmas), np.stack(rows))

    def at(self, sigma: float) -> Array:
        """The class counts at one σ."""
        row: Array = self.classes[self.sigmas.index(sigma)]
        return row


@dataclass(frozen=True)
class SearchProblem:
    """A prepared model, noise at σ₀, and the bound that n votes at level α will be given to afterwards."""

    base: BaseClassifier
    prepared: Prepared
    noise: Noise
    bound: Bound
    n: int
    alpha: float
    seed: int = 0
    execution: Execution = field(default_factory=Execution)
    grid: Grid = field(default_factory=lambda: Grid.of(None))

    @property
    def start(self) -> float:
        """σ₀."""
        return self.noise.sigma

    def _passes(self, votes: VoteKind | None = None) -> Passes:
        from smoothcert.engine.passes import Passes

        purpose = "searching sigma for inputs {indices}"
        return Passes(self.prepared, votes or self.bound.votes, self.execution, purpose)

    def count(
        self,
        requests: Sequence[VoteRequest],
        on_votes: Evaluations | None = None,
        votes: VoteKind | None = None,
    ) -> list[Counts]:
        """The votes of each request by σ and class; of the kind that the bound takes, unless another is asked for."""
        from smoothcert.engine.samples import votes_at_sigmas

        passes = self._passes(votes)
        cast = votes_at_sigmas(passes, self.noise, self.seed, self.grid, requests, on_votes)
        return [Counts.of(*each, self.prepared.classes) for each in zip(requests, cast)]

    def ascend(
        self,
        inputs: Sequence[Numbered],
        climb: Callable[[Wave], Sequence[R]],
        *,
        samples: int,
        rows: int,
        channels_last: bool = False,
        on_inputs: Callable[[int], None] | None = None,
    ) -> list[R]:
        """What ``climb`` finds for each input by gradients over fresh samples, in waves of passes of ``rows`` rows."""
        from smoothcert.engine.samples import GradientPasses, check_differentiable

        gradients = GradientPasses(
            check_differentiable(self.base, *_NEEDS_GRADIENTS),
            self.execution,
            remedy="use sigma search 'ladder' or 'grid'",
            # The prepared copy was made for inference only, and 16-bit types lose the small steps of σ.
            dtype=self.prepared.numerics.noise_dtype(),
            channels_last=channels_last and len(self.prepared.input_shape) == 3,
        )
        passes = self._passes()
        checked = [(index, passes.tensor(index, x)) for index, x in inputs]
        shape = {"samples": samples, "rows": rows}
        return gradients.ascend(checked, self.noise, self.seed, climb, **shape, on_inputs=on_inputs)


def with_sigma(noise: Noise, sigma: float) -> Noise:
    """The same kind of noise at another σ."""
    return NOISES[noise.kind](sigma)


@dataclass(frozen=True, kw_only=True)
class SigmaSearch(ABC):
    """Finds σ*ₓ between σ₀/``factor`` and σ₀·``factor``, or keeps σ₀ and says why.

    The range: p_A at the edge of what CERTIFY can certify falls off within an octave or two of the σ that a network
    was trained with (factor 4 spans the σ = 0.12 … 1.0 of the papers' models twice over).
    """

    uses_gradients: ClassVar[bool] = False

    factor: float = knob(4.0, "σ stays within this factor of where it starts")
    rescue: bool = knob(False, "also move inputs that abstain at the σ they start with")

    def __post_init__(self) -> None:
        if not 1 < self.factor <= 64:
            raise InvalidValueError(f"factor must lie above 1 and not above 64, got {self.factor}")

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Rows an input costs at most, forward and backward passes counted alike."""

    @abstractmethod
    def search(
        self, problem: SearchProblem, inputs: Sequence[Numbered], on_evaluations: Evaluations | None = None
    ) -> list[SearchResult]:
        """An answer for each (index, input), in order; it depends on nothing but problem, index and input."""

    def check(self, base: BaseClassifier) -> None:
        """Refuse a model that this search can't work with."""
        if self.uses_gradients:
            from smoothcert.engine.samples import check_differentiable

            check_differentiable(base, *_NEEDS_GRADIENTS)

    def as_json(self) -> dict[str, Any]:
        """Name and options, flat, as a plan states them."""
        options = {f"sigma_search.{each.name}": getattr(self, each.name) for each in fields(self)}
        return {"sigma_search": search_name(self), **options}

    @classmethod
    def from_knobs(cls, stated: Mapping[str, Any]) -> Self:
        """The search with the options that a plan states; those that it no longer has are ignored.

        The plan may be of any origin: an option of another kind than its field's is an InvalidValueError.
        """
        known = {each.name: stated[each.name] for each in fields(cls) if each.name in stated}
        try:
            return from_mapping(cls, known, "sigma search")
        except InvalidValueError as error:
            raise InvalidValueError(f"sigma_search.{error}: the plan was edited or is damaged") from None

    def limits(self, problem: SearchProblem) -> tuple[float, float]:
        """The smallest and the largest σ it may answer."""
        return problem.start / self.factor, problem.start * self.factor


SEARCHES: Registry[type[SigmaSearch]] = Registry("sigma search", __package__)


def search_name(search: SigmaSearch) -> str:
    """The name a search's class is registered under, or else the class's own."""
    return SEARCHES.name_of(type(search)) or type(search).__name__


def parse_search(text: str) -> SigmaSearch:
    """The search of ``ladder:rungs=9,rescue``; a mistake is told with every option and its default."""
    name, _, options = (part.strip() for part in text.partition(":"))
    if name not in SEARCHES:
        listed = "\n  ".join(map(_defaults, SEARCHES))
        raise InvalidValueError(
            f"{unknown_name('sigma search', name, SEARCHES.names())}. With their options and defaults:\n  {listed}"
        )
    values = {option: plain_value(value) for option, value in written_values(options, name, switches=True)}
    try:
        return from_mapping(SEARCHES[name], values, f"sigma search {name}", SEARCHES.load())
    except InvalidValueError as error:
        raise InvalidValueError(f"{error}. Options and defaults: {_defaults(name)}") from None


def _defaults(name: str) -> str:
    return written(name, {option.name: option.default for option in knobs_of(SEARCHES[name])})


def search_each(
    search: SigmaSearch,
    problem: SearchProblem,
    inputs: Iterator[tuple[int, NDArray[Any]]],
    on_evaluations: Evaluations | None = None,
) -> Iterator[tuple[int, NDArray[Any], SearchResult]]:
    """Each input with what was found for it, a batch at a time ahead of their certification.

    ``on_evaluations`` counts ``search.evaluations`` rows per input in all: an early stop is progress as well.
    """
    while batch := list(itertools.islice(inputs, _SEARCHED_TOGETHER)):
        results = search.search(problem, batch, on_evaluations)
        if on_evaluations is not None:
            on_evaluations(sum(search.evaluations - result.evaluations for result in results))
        yield from ((index, x, result) for (index, x), result in zip(batch, results))
