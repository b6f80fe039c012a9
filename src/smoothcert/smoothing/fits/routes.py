"""How σ is moved: by gradients of the mean softmax (the paper's way), or by votes for any model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes
from smoothcert.engine.samples import GradientPasses, check_differentiable, unit_noise
from smoothcert.errors import DataError, ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import NOISES
from smoothcert.smoothing.fits.objective import (
    LEAST_PROBABILITY,
    Counts,
    FitPurpose,
    GroupScales,
    Scales,
    Slope,
    Streams,
    certified_area,
    gap_slope,
    label_votes,
    least_gap,
    shrunk_share,
)
from smoothcert.smoothing.fits.plan import FitPlan

_ROWS = 128  # of a pass, about: small passes stay in the cache, forward and backward


@dataclass(frozen=True)
class Outcome:
    """A sub-epoch's mean objective, and the shares of its inputs that were counted and right; None at the start."""

    objective: float | None = None
    counted: float | None = None
    right: float | None = None


class Route(ABC):
    """An optimiser of σ: sub-epochs that depend on nothing but the plan, the data and :meth:`tensors`."""

    def __init__(self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: Scales) -> None:
        self._name, self._dataset, self._plan, self._scales = base.name, dataset, plan, scales
        self._noise, self._streams = NOISES[plan.noise](1.0), Streams(plan.seed)
        self._parameters = scales.parameters()

    def sigmas(self) -> NDArray[np.float64]:
        """The vector as it stands."""
        return self._scales.sigmas(self._parameters)

    @abstractmethod
    def rows(self, inputs: int) -> int:
        """Rows that a sub-epoch over this many inputs sends through the model."""

    @abstractmethod
    def tensors(self) -> dict[str, Any]:
        """Everything that the next sub-epoch depends on."""

    @abstractmethod
    def restore(self, tensors: dict[str, Any]) -> None:
        """Return to where :meth:`tensors` was asked."""

    @abstractmethod
    def sub_epoch(self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None]) -> Outcome:
        """Sub-epoch ``number``, from 1 on."""

    def _shuffled(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices[self._streams.permutation(len(indices), FitPurpose.SHUFFLE, number)]

    def _inputs(self, indices: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        labels = np.asarray(self._dataset.labels[indices], dtype=np.int64)
        return torch.from_numpy(self._dataset.inputs(indices)), labels

    def _unit(self, shape: tuple[int, ...], dtype: torch.dtype, *words: int) -> Tensor:
        bits = np.random.SFC64(self._streams.number(FitPurpose.NOISE, *words))
        return unit_noise(self._noise, shape, dtype, bits)

    def _nothing_right(self, right: int, inputs: int, hint: str = "") -> DataError:
        """The error for a fit in which no input can be certified."""
        mean = float(np.exp(np.log(self.sigmas()).mean()))
        return DataError(
            f"of {inputs} inputs, noise of σ ≈ {mean:.3g} leaves {right} in their class, none with a majority, so "
            f"there is nothing to fit. Start smaller (--init), {hint}or check that {self._name} and the data "
            "belong together"
        )


class GradientRoute(Route):
    """Adam on the mean certified area, by gradients of the mean softmax (Tecot et al., Algorithm 1).

    A batch is cut into shards of fixed size with random streams of their own, and their sums are added in order: the
    same bits whatever the number of workers.
    """

    def __init__(
        self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: Scales, execution: Execution
    ) -> None:
        remedy = "use --fit-by votes, with --groups if an input has many numbers"
        differentiable = check_differentiable(base, "the gradient route", remedy)
        super().__init__(base, dataset, plan, scales)
        self._passes = GradientPasses(
            differentiable,
            execution,
            remedy="use --fit-by votes, which only counts votes",
            channels_last=len(dataset.input_shape) == 3,
        )
        for parameter in self._parameters:
            parameter.requires_grad_()
        self._optimizer = torch.optim.Adam(self._parameters, lr=1.0)
        self._shard = max(1, _ROWS // plan.n0)

    def rows(self, inputs: int) -> int:
        """Rows of one sub-epoch, forward and backward passes counted alike."""
        return 2 * self._plan.n0 * inputs

    def tensors(self) -> dict[str, Any]:
        """Parameters, and Adam's moments."""
        return {
            "parameters": [parameter.detach().clone() for parameter in self._parameters],
            "optimizer": self._optimizer.state_dict(),
        }

    def restore(self, tensors: dict[str, Any]) -> None:
        """Return to where :meth:`tensors` was asked."""
        with torch.no_grad():
            for parameter, saved in zip(self._parameters, tensors["parameters"]):
                parameter.copy_(saved)
        self._optimizer.load_state_dict(tensors["optimizer"])

    def sub_epoch(self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None]) -> Outcome:
        """One pass over the inputs at ``indices`` in an order of its own."""
        plan, shuffled = self._plan, self._shuffled(number, indices)
        for group in self._optimizer.param_groups:
            # ln σ moves by lr/init, so σ moves by lr where it starts: the paper's step.
            group["lr"] = plan.lr / plan.init * plan.decay ** (number - 1)
        areas, slopes = [], []
        with self._passes.threads() as pool:
            for batch in range(0, len(indices), plan.batch):
                sigmas = self.sigmas()
                slope = self._batch_slope(pool, number, batch, shuffled[batch : batch + plan.batch], sigmas)
                slopes.append(slope)
                if slope.counted:
                    self._step(slope, sigmas, number, batch)
                    gap = float(np.exp(slope.log_gap / slope.counted))
                    areas.append((certified_area(sigmas, gap, plan.noise), slope.counted))
                on_rows(self.rows(slope.inputs))
        counted, right = sum(slope.counted for slope in slopes), sum(slope.right for slope in slopes)
        if not counted:
            hint = "raise --beta: the model's softmax may be less sure than its votes, "
            raise self._nothing_right(right, len(indices), hint)
        mean = sum(area * weight for area, weight in areas) / counted
        return Outcome(mean, counted / len(indices), right / len(indices))

    def _batch_slope(
        self,
        pool: ThreadPoolExecutor,
        number: int,
        batch: int,
        indices: NDArray[np.int64],
        sigmas: NDArray[np.float64],
    ) -> Slope:
        plan, device = self._plan, self._passes.device

        def slope_of(module: nn.Module, start: int) -> Slope:
            inputs, labels = self._inputs(indices[start : start + self._shard])
            unit = self._unit((plan.n0, *inputs.shape), inputs.dtype, number, batch + start).to(device)
            x, targets, scales = (
                tensor.to(device) for tensor in (inputs, torch.from_numpy(labels), torch.from_numpy(sigmas))
            )
            return gap_slope(module, x, targets, unit, scales, plan.noise, plan.beta)

        return reduce(add, self._passes.map(pool, slope_of, range(0, len(indices), self._shard)))

    def _step(self, slope: Slope, sigmas: NDArray[np.float64], number: int, batch: int) -> None:
        """Adam on the mean of Σ ln σ + D ln gap: its slope in ln σ is 1 + D·σ⊙(mean of ∂ ln gap/∂σ)."""
        if not bool(torch.isfinite(slope.gradient).all()):
            raise ModelError(
                f"{self._name}: the gradient of batch {batch // self._plan.batch} in sub-epoch {number} isn't finite. "
                "The model's weights or its input range may be broken; --fit-by votes needs no gradient"
            )
        ascent = 1.0 + sigmas.size / slope.counted * torch.from_numpy(sigmas) * slope.gradient
        gradients = torch.autograd.grad(self._scales.log_factors(self._parameters), self._parameters, -ascent)
        for parameter, gradient in zip(self._parameters, gradients):
            parameter.grad = gradient
        self._optimizer.step()


def vote_gaps(counts: Counts, labels: NDArray[np.int64], noise: str) -> NDArray[np.float64]:
    """The gap that votes (inputs, classes) promise; at least that of p_A = 0.51, so that losing an input costs.

    Half a vote is put on either side: unanimous votes are no proof of certainty.
    """
    for_label, for_rival, n = label_votes(counts, labels)
    first, kind = shrunk_share(for_label, n), NOISES[noise]
    if kind.steep:
        return np.asarray(kind.soft_gap(np.maximum(first, LEAST_PROBABILITY)))
    second = np.maximum(for_rival, 0.5) / (n + 1)
    return np.asarray(np.maximum(kind.soft_gap(first, second), least_gap(noise)))


class VoteRoute(Route):
    """For any model: each group's σ is tried larger and smaller, and what certifies more by votes is kept.

    Groups come in random order. A sweep has fresh noise, the same for every σ it tries: differences come from the
    model, not chance. The mean runs over the inputs that are right where the sweep begins, and one that is lost on the
    way counts with the smallest gap: otherwise the mean would rise by losing the hardest inputs.
    """

    def __init__(
        self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: GroupScales, execution: Execution
    ) -> None:
        super().__init__(base, dataset, plan, scales)
        self._groups = scales.groups
        prepared = base.prepare(Numerics(), dataset.input_shape, execution.main_device)
        self._passes = Passes(prepared, "hard", execution, "voting for a fit")

    def rows(self, inputs: int) -> int:
        """Rows of one sweep."""
        return (1 + 2 * self._groups) * self._plan.votes * min(inputs, self._plan.tried)

    def tensors(self) -> dict[str, Any]:
        """The groups' factors."""
        return {"theta": self._parameters[0].clone()}

    def restore(self, tensors: dict[str, Any]) -> None:
        """Return to where :meth:`tensors` was asked."""
        self._parameters = [tensors["theta"].clone()]

    def sub_epoch(self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None]) -> Outcome:
        """One sweep: every group is tried once in either direction."""
        plan = self._plan
        x, labels = self._inputs(np.sort(self._shuffled(number, indices)[: plan.tried]))
        unit = self._unit((len(x), plan.votes, *x.shape[1:]), x.dtype, number)
        classes = self._passes.prepared.classes
        with self._passes.threads() as pool:

            def counted(theta: Tensor, rows: NDArray[np.int64]) -> Counts:
                scale = torch.from_numpy(self._scales.sigmas([theta])).to(x.dtype)
                votes = self._passes.labels(pool, (x[rows, None] + unit[rows] * scale).flatten(0, 1))
                on_rows(plan.votes * len(x))  # rows not cast because their input was wrong are done too
                votes = votes.reshape(len(rows), -1)
                return np.stack([(votes == label).sum(1) for label in range(classes)], axis=1)

            counts = counted(self._parameters[0], np.arange(len(x)))
            right = counts.argmax(1) == labels
            gaps = vote_gaps(counts, labels, plan.noise)
            rows = np.flatnonzero(right & (gaps > vote_gaps(np.zeros_like(counts), labels, plan.noise)))
            if not len(rows):
                raise self._nothing_right(int(right.sum()), len(x))
            best = self._objective(self._parameters[0], gaps[rows])
            for theta in self._trials(number):
                gaps = vote_gaps(counted(theta, rows), labels[rows], plan.noise)
                if (objective := self._objective(theta, gaps)) > best:
                    self._parameters, best = [theta], objective
        return Outcome(best, len(rows) / len(x), float(right.mean()))

    def _trials(self, number: int) -> Iterator[Tensor]:
        """The factors as they stand, with each group in turn a step larger and a step smaller."""
        step = float(np.log(self._plan.factor)) * self._plan.decay ** (number - 1)
        for group in self._streams.permutation(self._groups, FitPurpose.ORDER, number).tolist():
            for direction in (step, -step):
                theta = self._parameters[0].clone()
                theta[group] += direction
                yield theta

    def _objective(self, theta: Tensor, gaps: NDArray[np.float64]) -> float:
        gap = float(np.exp(np.log(gaps).mean()))
        return certified_area(self._scales.sigmas([theta]), gap, self._plan.noise)
