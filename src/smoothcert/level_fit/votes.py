"""What each level is worth at an input: the radius of its label, estimated from pilot votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.level_fit.plan import LevelFitPlan
from smoothcert.noise import NOISES, Noise
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import labelled_for
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.smoothing.level_plans import stage_seed

OnVotes = Callable[[int], None]


def counted_votes(
    base: BaseClassifier,
    dataset: Dataset,
    indices: NDArray[np.int64],
    noise: Noise,
    votes: int,
    seed: int,
    execution: Execution,
    on_votes: OnVotes | None = None,
) -> NDArray[np.int64]:
    """How often each class was voted for, a row for each of ``indices``. Pilots' votes: they certify nothing."""
    smoothed = SmoothedClassifier(base, sigma=noise.sigma, noise=noise.name, seed=seed, execution=execution)
    inputs = ((int(index), dataset.input(int(index))) for index in indices)
    found = dict(smoothed.cast_each(inputs, votes, on_votes))
    return np.array([found[int(index)].counts for index in indices], dtype=np.int64)


def shrunk_share(votes: NDArray[np.int64], of: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """(votes + ½)/(of + 1): an estimate that unanimous votes don't make 1, where the radius would be infinite."""
    return np.asarray((votes + 0.5) / (np.asarray(of) + 1))


def label_radii(counts: NDArray[np.int64], labels: NDArray[np.int64], noise: Noise) -> NDArray[np.float64]:
    """The radius that the votes' shares would give each row's label if they were probabilities; 0 where it loses."""
    rows, n = np.arange(len(counts)), counts.sum(axis=1)
    others = counts.copy()
    others[rows, labels] = -1
    gap = noise.soft_gap(shrunk_share(counts[rows, labels], n), shrunk_share(others.max(axis=1), n))
    return np.asarray(noise.smallest_sigma * noise.semi_axis * np.maximum(gap, 0.0))


def radii_by_level(
    models: Sequence[BaseClassifier],
    dataset: Dataset,
    indices: NDArray[np.int64],
    plan: LevelFitPlan,
    execution: Execution,
    on_votes: OnVotes | None = None,
) -> NDArray[np.float64]:
    """A row for each input, a column for each level. ``models``: one for all levels, or one for each."""
    columns = []
    for level, sigma in enumerate(plan.sigmas):
        base, noise = models[level if len(models) > 1 else 0], NOISES[plan.noise](sigma)
        seed = stage_seed(plan.seed, f"fit level {level}")
        counts = counted_votes(base, dataset, indices, noise, plan.votes, seed, execution, on_votes)
        columns.append(label_radii(counts, labelled_for(base, dataset).labels[indices], noise))
    return np.stack(columns, axis=1)
