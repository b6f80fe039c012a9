"""Samples that certify nothing: votes of searches at many σ, and gradients of copies of a torch model.

Sample s of input i is x + σ·u, rounded to the grid, with u drawn from the stream (seed, i, SEARCH), which no
certificate uses. The same u serves every σ, so that differences between σ come from the model and not from chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.schedule import BlockBits, VoteRequest, rounds, slot_of
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.base import BaseClassifier, Prepared
from smoothcert.models.capture import Lending, private_copy
from smoothcert.models.numerics import check_device
from smoothcert.models.outputs import Ballots, read_ballots
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.base import Noise
from smoothcert.perturb.grid import Grid, draw_unit
from smoothcert.tally import Phase, Stream
from smoothcert.threads import Workers, one_caller

_DRAWN_TOGETHER = 32  # samples that share a random state
_ROWS = 32  # rows of one input that stay together in a pass


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows ``first`` to ``last`` of a request; its blocks of unit noise and the grid's steps at each of its σ."""

    request: VoteRequest
    x: torch.Tensor
    noise: dict[int, torch.Tensor]
    steps_per_unit: dict[float, float]
    first: int
    last: int

    @property
    def index(self) -> int:
        return self.request.index

    @property
    def wanted(self) -> slice:
        return slice(0, self.last - self.first)

    def fill(self, out: torch.Tensor, _bits: BlockBits, /) -> None:
        for row, into in enumerate(out):
            r = min(self.first + row, self.last - 1)
            number, place = divmod(int(self.request.samples[r]), _DRAWN_TOGETHER)
            sigma = float(self.request.sigmas[r])
            torch.add(self.x, self.noise[number][place], alpha=sigma, out=into)
            # On the grid, as certifying votes are: the search sees the same points as certification.
            steps = self.steps_per_unit[sigma]
            into.mul_(steps).round_().div_(steps)


def votes_at_sigmas(
    passes: Passes,
    noise: Noise,
    seed: int,
    grid: Grid,
    requests: Sequence[VoteRequest],
    on_votes: Callable[[int], None] | None = None,
) -> list[Ballots]:
    """The votes of each request, row by row; ``on_votes`` is called with the number of votes just cast."""
    chunk = passes.layout.chunk
    size = next(rows for rows in range(min(_ROWS, chunk), 0, -1) if chunk % rows == 0)
    slots = chunk // size

    def parts_of(request: VoteRequest) -> list[_Part]:
        """Parts of ``size`` rows, with unit noise that is drawn once for all σ."""
        x = passes.tensor(request.index, request.x)
        bits, stream, drawn = BlockBits(), Stream(seed, request.index, Phase.SEARCH), {}
        for number in np.unique(request.samples // _DRAWN_TOGETHER).tolist():
            unit = unit_noise(noise, (_DRAWN_TOGETHER, *x.shape), x.dtype, bits.seek(stream, number))
            if request.shape is not None:
                unit.mul_(torch.from_numpy(request.shape).to(x.dtype))
            drawn[number] = unit
        steps = {sigma: _steps_per_unit(grid, sigma) for sigma in np.unique(request.sigmas).tolist()}
        edges = [*range(0, len(request), size), len(request)]
        return [_Part(request, x, drawn, steps, *edge) for edge in itertools.pairwise(edges)]

    votes: dict[_Part, Ballots] = {}
    with passes.threads() as pool:
        parts = list(pool.map(parts_of, requests))
        numbered = (pair for own in parts for pair in enumerate(own))
        placed = (((slot_of(part.index, slots) + number) % slots, part) for number, part in numbered)
        for cast in pool.map(passes.cast, rounds(slots, placed)):
            votes |= dict(cast)
            if on_votes is not None:
                on_votes(sum(part.last - part.first for part, _ in cast))
    return [Ballots.joined([votes[part] for part in own]) for own in parts]


@lru_cache(maxsize=1024)
def _steps_per_unit(grid: Grid, sigma: float) -> float:
    return grid.steps_per_unit(sigma)


T = TypeVar("T")
R = TypeVar("R")


def check_differentiable(base: BaseClassifier, asker: str, remedy: str) -> TorchClassifier:
    """The model itself; refused if its gradients can't be had, with what works instead."""
    if isinstance(base, TorchClassifier):
        return base
    raise InvalidValueError(
        f"{asker} needs the gradients of a torch module, and {base.name} ({type(base).__name__}) has none: {remedy}"
    )


@dataclass(frozen=True)
class Wave:
    """Inputs that ascend together, each in its own slot of every pass; slots not ``used`` repeat one of them.

    ``unit`` draws noise of standard deviation 1 from a block of each input's stream: (samples, slots, …).
    """

    module: nn.Module
    x: Tensor
    positions: list[int]
    """Which of all inputs each slot holds."""
    used: list[int]
    unit: Callable[[int], Tensor]


class GradientPasses(Workers):
    """Copies of a torch model, each used by one thread at a time."""

    def __init__(
        self,
        base: TorchClassifier,
        execution: Execution,
        *,
        remedy: str | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
    ) -> None:
        """``remedy``: what to use instead of a model that fails; None leaves its errors as they are."""
        check_device(execution.main_device)
        module = private_copy(base.module).to(device=execution.main_device, dtype=dtype)
        if channels_last:  # convolutions are faster with it, forward and backward
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.device = execution.main_device
        self.workers = 1 if base.thread_safe is False else execution.worker_count()
        self._base, self._remedy = base, remedy
        self._modules = Lending(lambda: private_copy(module))

    def map(
        self, pool: ThreadPoolExecutor, function: Callable[[nn.Module, T], R], tasks: Iterable[T]
    ) -> Iterator[R]:
        """The function's values in the order of the tasks, each computed with a copy of the model to itself."""

        def borrowing(task: T) -> R:
            try:
                with self._alone(), self._modules.borrowed() as module:
                    return function(module, task)
            except (RuntimeError, ModelError) as error:
                if self._remedy is None:
                    raise
                reason = (str(error) or type(error).__name__).splitlines()[0]
                raise ModelError(f"{self._base.name} has no gradients ({reason}): {self._remedy}") from error

        return pool.map(borrowing, tasks)

    def _alone(self) -> AbstractContextManager[None]:
        return one_caller() if self._base.thread_safe is False else nullcontext()

    def ascend(
        self,
        inputs: Sequence[tuple[int, Tensor]],
        noise: Noise,
        seed: int,
        climb: Callable[[Wave], Sequence[R]],
        *,
        samples: int,
        rows: int,
        on_inputs: Callable[[int], None] | None = None,
    ) -> list[R]:
        """What ``climb`` finds for each (index, input): it is given waves and answers for every slot.

        A wave has as many slots as make ``rows`` rows with the samples of each. An input's slot follows from its index
        alone: same bits whatever its neighbours. ``on_inputs`` counts the inputs that waves have settled.
        """
        slots = max(1, rows // samples)

        def climbed(module: nn.Module, wave: list[int | None]) -> dict[int, R]:
            used = [slot for slot, position in enumerate(wave) if position is not None]
            real = next(position for position in wave if position is not None)
            # An empty slot repeats a real input, as zeros might trip the model.
            positions = [real if position is None else position for position in wave]
            x = torch.stack([inputs[position][1] for position in positions])
            drawn, bits = x.new_zeros((samples, *x.shape)), BlockBits()

            def unit(block: int) -> Tensor:
                for slot in used:
                    state = bits.seek(Stream(seed, inputs[positions[slot]][0], Phase.SEARCH), block)
                    drawn[:, slot] = unit_noise(noise, (samples, *x.shape[1:]), x.dtype, state)
                return drawn.to(self.device)

            found = climb(Wave(module, x.to(self.device), positions, used, unit))
            return {positions[slot]: found[slot] for slot in used}

        placed = ((slot_of(index, slots), position) for position, (index, _) in enumerate(inputs))
        results: dict[int, R] = {}
        with self.threads() as pool:
            for wave in self.map(pool, climbed, rounds(slots, placed)):
                results |= wave
                if on_inputs is not None:
                    on_inputs(len(wave))
        return [results[position] for position in range(len(inputs))]


def unit_noise(
    noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.SFC64
) -> torch.Tensor:
    """Noise of this kind with standard deviation 1, for searches, fits and attacks; no certificate rests on it."""
    drawn = torch.empty(shape, dtype=dtype)
    draw_unit(type(noise), drawn.numpy(), bits)
    return drawn


_SURE = 30.0  # the score of a label, whose probability is then 1 up to 1e-13


class ValuePasses(Workers):
    """A prepared model as a module without gradients, for attacks: classes have the numbers that votes give them."""

    def __init__(self, prepared: Prepared, execution: Execution) -> None:
        self.workers = prepared.workers(execution.worker_count())
        self._module = _Scores(prepared).eval()

    def map(
        self, pool: ThreadPoolExecutor, function: Callable[[nn.Module, T], R], tasks: Iterable[T]
    ) -> Iterator[R]:
        """The function's values in the order of the tasks."""
        return pool.map(lambda task: function(self._module, task), tasks)


class _Scores(nn.Module):
    """Scores as they are, logarithms of probabilities, and labels as a certainty."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared = prepared

    def forward(self, batch: Tensor) -> Tensor:
        """One row of scores for each row, asked in passes of the shape that votes are cast in."""
        chunk, dtype = self.prepared.numerics.layout().chunk, self.prepared.numerics.noise_dtype()
        with torch.no_grad():
            parts = torch.split(batch.to(dtype), chunk)
            return torch.cat([self._scores(self.prepared.outputs_of(part)) for part in parts]).to(batch.dtype)

    def _scores(self, answers: Tensor) -> Tensor:
        kind, classes = self.prepared.kind, self.prepared.classes
        if kind == "scores":
            return answers
        if kind == "probabilities":
            return answers.clamp(min=torch.finfo(answers.dtype).tiny).log()
        labels = torch.from_numpy(read_ballots(answers, kind, classes, "hard").labels)
        return F.one_hot(labels, classes) * _SURE
