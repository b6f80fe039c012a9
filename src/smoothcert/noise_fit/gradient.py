"""The paper's route: Adam on the mean certified area, by gradients of the mean softmax (Tecot et al., Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError
from smoothcert.noise import NOISES
from smoothcert.noise_fit.objective import Slope, certified_area, gap_slope
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.route import Outcome, nothing_right
from smoothcert.noise_fit.scales import Scales
from smoothcert.noise_fit.streams import Purpose, noise_bits, stream
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.gradients import GradientPasses, check_differentiable
from smoothcert.sampling.streams import unit_noise

_ROWS = 128  # of a pass, about: small passes stay in the cache, forward and backward


class GradientRoute:
    """Sub-epochs of a fit, by gradients.

    A batch is cut into shards of fixed size with random streams of their own, and their sums are added in order: the
    same bits whatever the number of workers.
    """

    def __init__(
        self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: Scales, execution: Execution
    ) -> None:
        remedy = "use --fit-by votes, with --groups if an input has many numbers"
        differentiable = check_differentiable(base, "the gradient route", remedy)
        self._name, self._dataset, self._plan, self._scales = base.name, dataset, plan, scales
        self._passes = GradientPasses(
            differentiable,
            execution,
            remedy="use --fit-by votes, which only counts votes",
            channels_last=len(dataset.input_shape) == 3,
        )
        self._noise = NOISES[plan.noise](1.0)  # type: ignore[call-arg]  # dataclasses whose one field is sigma
        self._parameters = [parameter.requires_grad_() for parameter in scales.parameters()]
        self._optimizer = torch.optim.Adam(self._parameters, lr=1.0)
        self._shard = max(1, _ROWS // plan.n0)

    def rows(self, inputs: int) -> int:
        """Rows of one sub-epoch, forward and backward passes counted alike."""
        return 2 * self._plan.n0 * inputs

    def sigmas(self) -> NDArray[np.float64]:
        """The vector as it stands."""
        return self._scales.sigmas(self._parameters)

    def tensors(self) -> dict[str, Any]:
        """Everything that the next sub-epoch depends on."""
        return {
            "parameters": [parameter.detach().clone() for parameter in self._parameters],
            "optimizer": self._optimizer.state_dict(),
        }

    def restore(self, tensors: dict[str, Any]) -> None:
        """Go back to where :meth:`tensors` was asked."""
        with torch.no_grad():
            for parameter, saved in zip(self._parameters, tensors["parameters"]):
                parameter.copy_(saved)
        self._optimizer.load_state_dict(tensors["optimizer"])

    def sub_epoch(
        self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None] | None
    ) -> Outcome:
        """One pass over the inputs at ``indices`` in an order of its own."""
        plan = self._plan
        order = torch.randperm(len(indices), generator=stream(plan.seed, Purpose.SHUFFLE, number)).numpy()
        for group in self._optimizer.param_groups:
            # ln σ moves by lr/init, so σ moves by lr where it starts: the paper's step.
            group["lr"] = plan.lr / plan.init * plan.decay ** (number - 1)
        areas, sums = [], []
        with self._passes.threads() as pool:
            for batch in range(0, len(indices), plan.batch):
                sigmas = self.sigmas()
                slope = self._batch_slope(pool, number, batch, indices[order[batch : batch + plan.batch]])
                sums.append(slope)
                if slope.counted:
                    self._check_finite(slope, number, batch)
                    self._step(slope, sigmas)
                    gap = float(np.exp(slope.log_gap / slope.counted))
                    areas.append((certified_area(sigmas, gap, plan.noise), slope.counted))
                if on_rows is not None:
                    on_rows(self.rows(slope.inputs))
        counted, right = sum(one.counted for one in sums), sum(one.right for one in sums)
        if not counted:
            hint = "raise --beta: the model's softmax may be less sure than its votes"
            raise nothing_right(self._name, right, len(indices), self.sigmas(), f"{hint}, ")
        mean = sum(area * weight for area, weight in areas) / counted
        return Outcome(mean, counted / len(indices), right / len(indices))

    def _batch_slope(
        self, pool: ThreadPoolExecutor, number: int, batch: int, indices: NDArray[np.int64]
    ) -> Slope:
        sigmas = torch.from_numpy(self.sigmas())

        def slope_of(module: nn.Module, start: int) -> Slope:
            shard = indices[start : start + self._shard]
            return self._shard_slope(module, number, batch + start, shard, sigmas)

        return reduce(add, self._passes.map(pool, slope_of, range(0, len(indices), self._shard)))

    def _shard_slope(
        self, module: nn.Module, number: int, first: int, indices: NDArray[np.int64], sigmas: Tensor
    ) -> Slope:
        plan, device = self._plan, self._passes.device
        x = torch.from_numpy(self._dataset.inputs(indices))
        labels = torch.from_numpy(np.asarray(self._dataset.labels[indices], dtype=np.int64))
        bits = noise_bits(plan.seed, number, first)
        unit = unit_noise(self._noise, (plan.n0, *x.shape), x.dtype, bits)
        x, labels, unit, sigmas = (tensor.to(device) for tensor in (x, labels, unit, sigmas))
        return gap_slope(module, x, labels, unit, sigmas, plan.noise, plan.beta)

    def _step(self, slope: Slope, sigmas: NDArray[np.float64]) -> None:
        """Adam on the mean of Σ ln σ + D ln gap: its slope in ln σ is 1 + D·σ⊙(mean of ∂ ln gap/∂σ)."""
        ascent = 1.0 + sigmas.size / slope.counted * torch.from_numpy(sigmas) * slope.gradient
        gradients = torch.autograd.grad(self._scales.log_factors(self._parameters), self._parameters, -ascent)
        for parameter, gradient in zip(self._parameters, gradients):
            parameter.grad = gradient
        self._optimizer.step()

    def _check_finite(self, slope: Slope, number: int, batch: int) -> None:
        if not bool(torch.isfinite(slope.gradient).all()):
            raise ModelError(
                f"{self._name}: the gradient of batch {batch // self._plan.batch} in sub-epoch {number} isn't finite. "
                "The model's weights or its input range may be broken; --fit-by votes needs no gradient"
            )
