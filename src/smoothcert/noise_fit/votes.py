"""The route for any model: each group's σ is tried larger and smaller, and what certifies more by votes is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.noise import NOISES
from smoothcert.noise_fit.objective import LEAST_PROBABILITY, certified_area, least_gap
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.route import Outcome, nothing_right
from smoothcert.noise_fit.scales import GroupScales
from smoothcert.noise_fit.streams import Purpose, noise_bits, stream
from smoothcert.sampling import BaseClassifier, Execution, Numerics
from smoothcert.sampling.passes import Passes
from smoothcert.sampling.streams import unit_noise

Counts = NDArray[np.int64]


def vote_gaps(counts: Counts, labels: NDArray[np.int64], noise: str) -> NDArray[np.float64]:
    """The gap that votes (inputs, classes) promise; at least that of p_A = 0.51, so that losing an input costs.

    Half a vote is put on either side: unanimous votes are no proof of certainty.
    """
    rows = np.arange(len(labels))
    n = counts.sum(1)
    first = (counts[rows, labels] + 0.5) / (n + 1)
    kind = NOISES[noise]
    if kind.steep:
        return np.asarray(kind.soft_gap(np.maximum(first, LEAST_PROBABILITY)))
    others = counts.copy()
    others[rows, labels] = -1
    second = np.maximum(others.max(1), 0.5) / (n + 1)
    return np.asarray(np.maximum(kind.soft_gap(first, second), least_gap(noise)))


class VoteRoute:
    """Sweeps over the groups in random order.

    A sweep has fresh noise, the same for every σ it tries: differences come from the model, not chance. The mean
    runs over the inputs that are right where the sweep begins, and one that is lost on the way counts with the smallest
    gap: otherwise the mean would rise by losing the hardest inputs.
    """

    def __init__(
        self, base: BaseClassifier, dataset: Dataset, plan: FitPlan, scales: GroupScales, execution: Execution
    ) -> None:
        self._name, self._dataset, self._plan, self._scales = base.name, dataset, plan, scales
        prepared = base.prepare(Numerics(), dataset.input_shape, execution.main_device)
        self._passes = Passes(prepared, "hard", execution, "voting for a fit")
        self._noise = NOISES[plan.noise](1.0)
        (self._theta,) = scales.parameters()

    def rows(self, inputs: int) -> int:
        """Rows of one sweep."""
        return (1 + 2 * self._scales.groups) * self._plan.votes * min(inputs, self._plan.tried)

    def sigmas(self) -> NDArray[np.float64]:
        """The vector as it stands."""
        return self._scales.sigmas([self._theta])

    def tensors(self) -> dict[str, Any]:
        """The groups' factors."""
        return {"theta": self._theta.clone()}

    def restore(self, tensors: dict[str, Any]) -> None:
        """Go back to where :meth:`tensors` was asked."""
        self._theta = tensors["theta"].clone()

    def sub_epoch(
        self, number: int, indices: NDArray[np.int64], on_rows: Callable[[int], None] | None
    ) -> Outcome:
        """One sweep: every group is tried once in either direction."""
        plan = self._plan
        chosen = torch.randperm(len(indices), generator=stream(plan.seed, Purpose.SHUFFLE, number)).numpy()
        indices = np.sort(indices[chosen[: plan.tried]])
        x = torch.from_numpy(self._dataset.inputs(indices))
        labels = np.asarray(self._dataset.labels[indices], dtype=np.int64)
        bits = noise_bits(plan.seed, number)
        unit = unit_noise(self._noise, (len(x), plan.votes, *x.shape[1:]), x.dtype, bits)
        order = torch.randperm(self._scales.groups, generator=stream(plan.seed, Purpose.ORDER, number))
        step = float(np.log(plan.factor)) * plan.decay ** (number - 1)
        classes = self._passes.prepared.classes
        with self._passes.threads() as pool:

            def counted(theta: torch.Tensor, rows: NDArray[np.int64]) -> Counts:
                scale = torch.from_numpy(self._scales.sigmas([theta])).to(x.dtype)
                found = self._passes.labels(pool, (x[rows, None] + unit[rows] * scale).flatten(0, 1))
                if on_rows is not None:
                    on_rows(plan.votes * len(x))  # rows not cast because their input was wrong are done too
                votes = found.reshape(len(rows), -1)
                return np.stack([(votes == label).sum(1) for label in range(classes)], axis=1)

            counts = counted(self._theta, np.arange(len(x)))
            right = counts.argmax(1) == labels
            gaps = vote_gaps(counts, labels, plan.noise)
            rows = np.flatnonzero(right & (gaps > vote_gaps(np.zeros_like(counts), labels, plan.noise)))
            if not len(rows):
                raise nothing_right(self._name, int(right.sum()), len(x), self.sigmas())
            best = self._objective(self._theta, gaps[rows])
            for group in order.tolist():
                for direction in (step, -step):
                    theta = self._theta.clone()
                    theta[group] += direction
                    found = self._objective(theta, vote_gaps(counted(theta, rows), labels[rows], plan.noise))
                    if found > best:
                        self._theta, best = theta, found
        return Outcome(best, len(rows) / len(x), float(right.mean()))

    def _objective(self, theta: torch.Tensor, gaps: NDArray[np.float64]) -> float:
        """The mean of O_CA over the inputs whose gaps these are."""
        gap = float(np.exp(np.log(gaps).mean()))
        return certified_area(self._scales.sigmas([theta]), gap, self._plan.noise)
