"""Search votes: one input's samples at many σ, with common random numbers, in passes of fixed shape.

Sample s of input i is x + σ·u, rounded to the grid, with u drawn from the stream (seed, i, SEARCH), which no
certificate uses. The same u serves every σ, so that differences between σ are differences of the model and not of luck.
An input's rows sit in the same place of a pass whoever its neighbours are: same bits whatever the batch, the workers
and the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import ModelError
from smoothcert.noise import draw_unit
from smoothcert.sampling.ballots import Ballots, read_ballots
from smoothcert.sampling.streams import BlockBits
from smoothcert.sampling.threads import one_openmp_thread
from smoothcert.sigma_search.problem import Problem, slot_of
from smoothcert.tally import Phase, Stream

_DRAWN_TOGETHER = 32  # samples that share a random state
_ROWS = 32  # rows of one input that stay together in a pass

Evaluations = Callable[[int], None]
"""Hears of network evaluations as they are done."""


@dataclass(frozen=True)
class Request:
    """Row r is sample ``samples[r]`` of the input at ``sigmas[r]``; a ``shape`` stretches each coordinate's noise."""

    index: int
    x: NDArray[np.generic]
    sigmas: NDArray[np.float64]
    samples: NDArray[np.int64]
    shape: NDArray[np.float64] | None = None

    @classmethod
    def product(
        cls, index: int, x: NDArray[np.generic], sigmas: Sequence[float], start: int, stop: int
    ) -> Request:
        """Samples ``start`` to ``stop`` at each of ``sigmas``: rows of one σ are neighbours."""
        samples = np.arange(start, stop)
        return cls(
            index, x, np.repeat(np.asarray(sigmas, np.float64), len(samples)), np.tile(samples, len(sigmas))
        )

    def __len__(self) -> int:
        return len(self.sigmas)


@dataclass
class _Filling:
    """A request under way: its input, its unit noise, and the sums of each row so far."""

    request: Request
    x: torch.Tensor
    blocks: dict[int, torch.Tensor] = field(default_factory=dict)
    ballots: list[Ballots | None] = field(default_factory=list)


class Booth:
    """Casts the votes of a search and counts what they cost."""

    def __init__(self, problem: Problem, on_evaluations: Evaluations | None = None) -> None:
        self.problem = problem
        self._on_evaluations = on_evaluations
        chunk = problem.prepared.numerics.layout().chunk
        self._rows = next(rows for rows in range(min(_ROWS, chunk), 0, -1) if chunk % rows == 0)
        self._slots = chunk // self._rows
        self._dtype = problem.prepared.numerics.noise_dtype()
        self._steps: dict[float, float] = {}

    def cast(self, requests: Sequence[Request]) -> list[Ballots]:
        """The votes of each request, row by row."""
        fillings = [_Filling(request, self.problem.tensor(request.index, request.x)) for request in requests]
        lanes: list[list[tuple[_Filling, int]]] = [[] for _ in range(self._slots)]
        for filling in fillings:
            pieces = -(-len(filling.request) // self._rows)
            filling.ballots = [None] * pieces
            for piece in range(pieces):
                slot = (slot_of(filling.request.index, self._slots) + piece) % self._slots
                lanes[slot].append((filling, piece))
        depth = max((len(lane) for lane in lanes), default=0)
        rounds = [[lane[r] if r < len(lane) else None for lane in lanes] for r in range(depth)]
        self._draw(fillings)
        workers = self.problem.prepared.workers(self.problem.execution.worker_count())
        with one_openmp_thread(), ThreadPoolExecutor(workers) as pool:
            for cast in pool.map(self._pass, rounds):
                if self._on_evaluations is not None:
                    self._on_evaluations(cast)
        return [_joined(filling.ballots) for filling in fillings]

    def _draw(self, fillings: Sequence[_Filling]) -> None:
        """Each input's unit noise, once for all σ."""
        bits, shape = BlockBits(), self.problem.prepared.input_shape
        for filling in fillings:
            stream = Stream(self.problem.seed, filling.request.index, Phase.SEARCH)
            for number in np.unique(filling.request.samples // _DRAWN_TOGETHER).tolist():
                block = torch.empty((_DRAWN_TOGETHER, *shape), dtype=self._dtype)
                draw_unit(self.problem.noise, block, bits.seek(stream, number))
                if filling.request.shape is not None:
                    block.mul_(torch.from_numpy(filling.request.shape).to(self._dtype))
                filling.blocks[number] = block

    def _pass(self, placed: list[tuple[_Filling, int] | None]) -> int:
        """One pass, always of the same shape; the number of votes in it."""
        shape = self.problem.prepared.input_shape
        used = next(slot for slot, one in enumerate(placed) if one is not None)
        with torch.inference_mode():
            buffer = torch.empty((self._slots, self._rows, *shape), dtype=self._dtype)
            for slot, one in enumerate(placed):
                if one is not None:
                    self._fill(buffer[slot], *one)
            for slot, one in enumerate(placed):
                if one is None:
                    buffer[slot] = buffer[used]
            ballots = self._ask(buffer.flatten(0, 1), [one[0].request for one in placed if one])
        total = 0
        for slot, one in enumerate(placed):
            if one is not None:
                filling, piece = one
                rows = min(self._rows, len(filling.request) - piece * self._rows)
                filling.ballots[piece] = _part(ballots, slice(slot * self._rows, slot * self._rows + rows))
                total += rows
        return total

    def _fill(self, out: torch.Tensor, filling: _Filling, piece: int) -> None:
        request = filling.request
        first = piece * self._rows
        for row in range(self._rows):
            r = min(first + row, len(request) - 1)  # rows past the end repeat the last: nobody counts them
            number, place = divmod(int(request.samples[r]), _DRAWN_TOGETHER)
            sigma = float(request.sigmas[r])
            torch.add(filling.x, filling.blocks[number][place], alpha=sigma, out=out[row])
            # On the grid, as certifying votes are: what the model is asked about here is what it will be asked there.
            steps = self._steps_per_unit(sigma)
            out[row].mul_(steps).round_().div_(steps)

    def _steps_per_unit(self, sigma: float) -> float:
        if sigma not in self._steps:
            self._steps[sigma] = self.problem.grid.steps_per_unit(sigma)
        return self._steps[sigma]

    def _ask(self, rows: torch.Tensor, requests: Sequence[Request]) -> Ballots:
        prepared = self.problem.prepared
        try:
            return read_ballots(
                prepared.outputs(rows), prepared.kind, prepared.classes, self.problem.rule.votes
            )
        except Exception as error:
            indices = sorted({request.index for request in requests})
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            raise ModelError(f"searching sigma for inputs {indices}: {reason}") from error


def _part(ballots: Ballots, rows: slice) -> Ballots:
    if ballots.probabilities is None or ballots.squares is None:
        return Ballots(ballots.labels[rows])
    return Ballots(ballots.labels[rows], ballots.probabilities[rows], ballots.squares[rows])


def _joined(parts: Sequence[Ballots | None]) -> Ballots:
    found = [part for part in parts if part is not None]
    labels = np.concatenate([part.labels for part in found])
    probabilities = [part.probabilities for part in found if part.probabilities is not None]
    squares = [part.squares for part in found if part.squares is not None]
    if not probabilities:
        return Ballots(labels)
    return Ballots(labels, np.concatenate(probabilities), np.concatenate(squares))
