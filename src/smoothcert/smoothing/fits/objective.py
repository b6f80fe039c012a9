"""What a fit climbs: the certified area with its surrogate (Tecot et al., non-uniform smoothing, §4), what may vary in
a σ vector, and the random streams of fits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES

Counts = NDArray[np.int64]


class FitPurpose(IntEnum):
    """One stream for each, so that drawing more of one never shifts another."""

    HOLDOUT = 0
    SHUFFLE = 1
    NOISE = 2
    START = 3
    ORDER = 4
    VALIDATION = 5


@dataclass(frozen=True)
class Streams:
    """Random streams, each named by seed, purpose and further numbers: no state to save.

    No certification draws from them unless given that exact seed; ``space`` keeps those of fits of noise, of fits of
    choosers and of training apart.
    """

    seed: int
    space: int = 0x6E6F697365

    def number(self, purpose: FitPurpose, *words: int) -> int:
        """The number that names a stream."""
        names = [self.space, self.seed, int(purpose), *words]
        return int(np.random.SeedSequence(names).generate_state(1, np.uint64)[0])

    def generator(self, purpose: FitPurpose, *words: int) -> torch.Generator:
        """A generator at the beginning of a stream."""
        return torch.Generator().manual_seed(self.number(purpose, *words))

    def permutation(self, length: int, purpose: FitPurpose, *words: int) -> NDArray[np.int64]:
        """0 … length−1 in random order."""
        order: NDArray[np.int64] = torch.randperm(length, generator=self.generator(purpose, *words)).numpy()
        return order

    def split(
        self, indices: range, validation: int, most: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions to fit on and ``validation`` positions kept apart, of at most ``most`` drawn in all."""
        drawn = len(indices) if most is None else min(most, len(indices))
        if validation >= drawn:
            raise InvalidValueError(
                f"validation must be less than the {drawn} inputs there are, got {validation}: the rest is fitted on. "
                f"Keep fewer apart: --validation {max(1, drawn // 4)}, say"
            )
        order = self.permutation(len(indices), FitPurpose.HOLDOUT)[:drawn]
        positions = np.asarray(indices, dtype=np.int64)[order]
        return np.sort(positions[validation:]), np.sort(positions[:validation])


@dataclass(frozen=True)
class FitProgress:
    """Progress callbacks of a fit."""

    begin: Callable[[int, int, int], None] = lambda *_: None
    """(rows to evaluate, epochs or sub-epochs in all, those done before)"""
    rows: Callable[[int], None] = lambda _: None
    epoch: Callable[[Any], None] = lambda _: None
    """What there is to say of one that ended: a number, or its metrics."""


def shrunk_share(votes: NDArray[Any], of: NDArray[Any] | int) -> NDArray[np.float64]:
    """(votes + ½)/(of + 1): an estimate that unanimous votes don't make 1, where the radius would be infinite."""
    return np.asarray((votes + 0.5) / (np.asarray(of) + 1))


def label_votes(counts: Counts, labels: Counts) -> tuple[Counts, Counts, Counts]:
    """Votes for each row's label, the most votes for another class, and all votes."""
    rows = np.arange(len(labels))
    others = counts.copy()
    others[rows, labels] = -1
    return counts[rows, labels], others.max(axis=1), counts.sum(axis=1)


LEAST_PROBABILITY = 0.51
"""Of the true class. At ½ there is no gap and its logarithm runs to −∞: an input so close to it would alone decide a
batch's gradient."""
MOST_PROBABILITY = 0.9999
"""About what 100 000 unanimous votes prove at α = .001: beyond it nothing more could be certified."""


def least_gap(noise: str) -> float:
    """The gap that is left between that probability and all else, for noise whose gap isn't steep."""
    return float(NOISES[noise].soft_gap(LEAST_PROBABILITY))


def certified_area(sigmas: NDArray[np.float64], gap: float, noise: str = DEFAULT_NOISE) -> float:
    """O_CA = Σ ln s_i + D ln gap; s = σ and gap = Φ⁻¹(p_A), or s = λ = √3σ and gap = p_A − p_B for uniform noise."""
    return float(np.sum(np.log(NOISES[noise].semi_axis * sigmas))) + sigmas.size * math.log(gap)


def log_gaps(logits: Tensor, labels: Tensor, noise: str, beta: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """(ln gap, counted, right) of each input from the logits of its samples, (samples, inputs, classes).

    ``right``: most samples are put in the true class, as g(x) = c in the paper. ``counted``: right, and the mean
    softmax of the true class leaves a gap; an input without one has no region whose size could be averaged. ``beta``
    multiplies the logits: the larger, the more a sample's softmax is like its vote.
    """
    classes = logits.shape[-1]
    right = F.one_hot(logits.argmax(-1), classes).sum(0).argmax(-1) == labels
    means = (beta * logits).softmax(-1).mean(0)
    first = means.gather(1, labels[:, None]).squeeze(1)
    kind = NOISES[noise]
    if kind.steep:
        gap = kind.soft_gap(first.clamp(LEAST_PROBABILITY, MOST_PROBABILITY))
        enough = first > LEAST_PROBABILITY
    else:
        second = means.masked_fill(F.one_hot(labels, classes).bool(), -1.0).amax(1)
        gap = kind.soft_gap(first, second)
        enough, gap = gap > least_gap(noise), gap.clamp(min=least_gap(noise))
    return gap.log(), right & enough, right


@dataclass(frozen=True)
class Slope:
    """Sums over some inputs: ∂ ln gap / ∂σ, ln gap, how many inputs were counted, and how many were right."""

    gradient: Tensor
    log_gap: float
    counted: int
    right: int
    inputs: int

    def __add__(self, other: Slope) -> Slope:
        return Slope(*map(add, vars(self).values(), vars(other).values()))


def gap_slope(
    model: nn.Module, x: Tensor, labels: Tensor, unit: Tensor, sigmas: Tensor, noise: str, beta: float = 1.0
) -> Slope:
    """The sums over a batch at x + σ⊙unit; ``unit`` has standard deviation 1 and the samples in front."""
    with torch.enable_grad():
        point = sigmas.detach().to(x.dtype).requires_grad_()
        logits = model((x + unit * point).flatten(0, 1))
        if not logits.requires_grad:
            raise ModelError("no gradient runs from the model's outputs to its inputs")
        gaps, counted, right = log_gaps(logits.reshape(len(unit), len(x), -1), labels, noise, beta)
        total = gaps[counted].sum()
        (gradient,) = torch.autograd.grad(total, point)
    return Slope(gradient.double().cpu(), float(total.detach()), int(counted.sum()), int(right.sum()), len(x))


class Scales(ABC):
    """Parameters and the map from them to ln(σ/start). At the start σ is exactly the vector it was made with.

    Logarithms and not σ itself: σ can't become negative, and a step means the same for a coordinate in
    millimetres as for one in thousands of euros.
    """

    def __init__(self, start: NDArray[np.float64]) -> None:
        self.start = start

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """Where they start, in float64."""

    @abstractmethod
    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """ln(σ/start), in the shape of an input."""

    def sigmas(self, parameters: Sequence[Tensor]) -> NDArray[np.float64]:
        """The vector itself."""
        return np.asarray(self.start * self.log_factors(parameters).detach().exp().numpy())


class GroupScales(Scales):
    """One factor for each group: σ_i = start_i · exp(θ of i's group)."""

    def __init__(self, start: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        super().__init__(start)
        self.labels = torch.from_numpy(np.ascontiguousarray(labels))
        self.groups = int(labels.max()) + 1

    def parameters(self) -> list[Tensor]:
        """Zero for every group."""
        return [torch.zeros(self.groups, dtype=torch.float64)]

    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """Each coordinate's θ is its group's; so gradients are summed over a group."""
        (theta,) = parameters
        return theta[self.labels]


class LowRankScales(Scales):
    """For images: ln σ[c, i, j] = ln start + Σ_r u[c, i, r] v[c, j, r], with R·(height + width) numbers a channel.

    v starts at 0, so that σ starts where it should; u at ones for r = 0 (columns, and the overall scale) and at random
    signs for the others, because where both are 0 no gradient leaves.
    """

    def __init__(self, start: NDArray[np.float64], rank: int, seed: int) -> None:
        super().__init__(start)
        if start.ndim != 3:
            raise InvalidValueError(
                f"rank needs images of shape (channels, height, width), got inputs of shape {start.shape}; "
                "leave --rank out and use --groups"
            )
        if rank > min(start.shape[1:]):
            raise InvalidValueError(
                f"rank must be at most the shorter side, {min(start.shape[1:])}, got {rank}"
            )
        self.rank, self.seed = rank, seed

    def parameters(self) -> list[Tensor]:
        """u and v."""
        channels, height, width = self.start.shape
        signs = torch.randint(
            0, 2, (channels, height, self.rank), generator=Streams(self.seed).generator(FitPurpose.START)
        )
        u = (2 * signs - 1).double()
        u[..., 0] = 1.0
        return [u, torch.zeros(channels, width, self.rank, dtype=torch.float64)]

    def log_factors(self, parameters: Sequence[Tensor]) -> Tensor:
        """The product."""
        u, v = parameters
        return u @ v.transpose(1, 2)


def starting_vector(
    shape: tuple[int, ...], init: float, spread: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """``init`` everywhere, or ``init`` times each coordinate's standard deviation."""
    if spread is None:
        return np.full(shape, init, dtype=np.float64)
    if not (spread > 0).all():
        where = tuple(int(i) for i in np.argwhere(~(spread > 0))[0])
        raise InvalidValueError(
            f"coordinate {where} never changes in the data, so its σ can't start at a share of its spread: leave "
            "--scale out, or leave the coordinate out of the data"
        )
    return init * spread.astype(np.float64)
