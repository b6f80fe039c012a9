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
from torch import Tensor

from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.noise import NOISES, draw_unit
from smoothcert.noise_fit.objective import Slope, certified_area, gap_slope
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.scales import Scales
from smoothcert.noise_fit.streams import Purpose, noise_bits, stream
from smoothcert.noise_fit.work import Outcome, nothing_right
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.sampling.models.copies import private_copy
from smoothcert.sampling.threads import one_openmp_thread

_ROWS = 128  # of a pass, about: small passes stay in the cache, forward and backward


class GradientRoute:
    """Sub-epochs of a fit, by gradients.

    A batch is cut into shards of fixed size with random streams of their own, and their sums are added in order: the
    same bits whatever the number of workers.
    """

    def __init__(
        self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: Scales, execution: Execution
    ) -> None:
        check_has_gradients(base)
        assert isinstance(base, TorchClassifier)
        self._name, self._dataset, self._plan, self._scales = base.name, dataset, plan, scales
        self._execution = execution
        module = private_copy(base.module).to(execution.device)
        if len(dataset.input_shape) == 3:  # convolutions are faster with channels last
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._modules = base.lend(module)
        self._noise = NOISES[plan.noise](1.0)  # type: ignore[call-arg]  # dataclasses whose one field is sigma
        self._parameters = [parameter.requires_grad_() for parameter in scales.parameters()]
        self._optimizer = torch.optim.Adam(self._parameters, lr=1.0)
        self._shard = max(1, _ROWS // plan.n0)

    def work(self, inputs: int) -> int:
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
        self, number: int, places: NDArray[np.int64], on_work: Callable[[int], None] | None
    ) -> Outcome:
        """One pass over the inputs at ``places`` in an order of its own."""
        plan = self._plan
        order = torch.randperm(len(places), generator=stream(plan.seed, Purpose.SHUFFLE, number)).numpy()
        for group in self._optimizer.param_groups:
            # ln σ moves by lr/init, so σ moves by lr where it starts: the paper's step.
            group["lr"] = plan.lr / plan.init * plan.decay ** (number - 1)
        areas, sums = [], []
        with one_openmp_thread(), ThreadPoolExecutor(self._execution.worker_count()) as pool:
            for batch in range(0, len(places), plan.batch):
                sigmas = self.sigmas()
                slope = self._batch_slope(pool, number, batch, places[order[batch : batch + plan.batch]])
                sums.append(slope)
                if slope.counted:
                    self._check_finite(slope, number, batch)
                    self._step(slope, sigmas)
                    gap = float(np.exp(slope.log_gap / slope.counted))
                    areas.append((certified_area(sigmas, gap, plan.noise), slope.counted))
                if on_work is not None:
                    on_work(self.work(slope.inputs))
        counted, right = sum(one.counted for one in sums), sum(one.right for one in sums)
        if not counted:
            hint = "raise --beta: the model's softmax may be less sure than its votes"
            raise nothing_right(self._name, right, len(places), self.sigmas(), f"{hint}, ")
        mean = sum(area * weight for area, weight in areas) / counted
        return Outcome(mean, counted / len(places), right / len(places))

    def _batch_slope(
        self, pool: ThreadPoolExecutor, number: int, batch: int, places: NDArray[np.int64]
    ) -> Slope:
        sigmas = torch.from_numpy(self.sigmas())
        starts = range(0, len(places), self._shard)

        def slope_of(start: int) -> Slope:
            return self._shard_slope(number, batch + start, places[start : start + self._shard], sigmas)

        return reduce(add, pool.map(slope_of, starts))

    def _shard_slope(self, number: int, first: int, places: NDArray[np.int64], sigmas: Tensor) -> Slope:
        device = self._execution.device
        x = torch.from_numpy(self._dataset.inputs(places))
        labels = torch.from_numpy(np.asarray(self._dataset.labels[places], dtype=np.int64))
        unit = torch.empty((self._plan.n0, *x.shape), dtype=x.dtype)
        draw_unit(self._noise, unit, noise_bits(self._plan.seed, number, first))
        try:
            with self._modules.borrowed() as module:
                return gap_slope(
                    module,
                    x.to(device),
                    labels.to(device),
                    unit.to(device),
                    sigmas.to(device),
                    self._plan.noise,
                    self._plan.beta,
                )
        except (RuntimeError, ModelError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"{self._name} can't be differentiated ({reason}): use --route votes, which only counts votes"
            ) from error

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
                "The model's weights or its input range may be broken; --route votes needs no gradient"
            )


def check_has_gradients(base: BaseClassifier) -> None:
    """Refuse a model whose gradients can't be had, and say what works instead."""
    if not isinstance(base, TorchClassifier):
        raise InvalidValueError(
            f"the gradient route needs the gradients of a torch module, and {base.name} ({type(base).__name__}) has "
            "none: use --route votes, with --groups if an input has many numbers"
        )
