"""SmoothMix's diagnostics: how confidence changes on the way to an adversary that no norm restricts.

A smoothed classifier that is far more confident at the adversary than at the input loses the input early on the line
between them, and with it certified radius (Jeong et al., 2021, sections 3.1 and H). These are pictures of a
model, not certificates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.attacks import at_rest, norms, pgd_path
from smoothcert.datasets.base import Dataset
from smoothcert.empirical.results import LinePlan
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise, noise_copies
from smoothcert.threads import counted_pass, openmp_threads, threads_for


@dataclass(frozen=True)
class ConfidenceLine:
    """One input's votes on the line to its adversary; ``shares`` has a row of class shares for each ratio.

    ``adversary`` has the shape of an input; a line that was made by hand may do without.
    """

    index: int
    label: int
    distance: float
    ratios: NDArray[np.float64]
    shares: NDArray[np.float64]
    adversary: NDArray[np.float32] | None = None

    @property
    def rival(self) -> int:
        """The class ahead at the adversary, other than the label."""
        end = self.shares[-1].copy()
        end[self.label] = -1
        return int(end.argmax())

    @property
    def right(self) -> bool:
        """Whether the label is ahead at the input itself."""
        return int(self.shares[0].argmax()) == self.label

    @property
    def equal_confidence_ratio(self) -> float | None:
        """The smallest mixing ratio at which another class draws level with the label; None if none does.

        Interpolated between the two ratios that enclose it. 0 for an input that is wrong to begin with.
        """
        label = self.shares[:, self.label]
        margin = label - np.delete(self.shares, self.label, axis=1).max(axis=1)
        lost = np.flatnonzero(margin <= 0)
        if not len(lost):
            return None
        after = int(lost[0])
        if after == 0:
            return 0.0
        before = after - 1
        part = margin[before] / (margin[before] - margin[after])
        return float(self.ratios[before] + part * (self.ratios[after] - self.ratios[before]))


def confidence_lines(
    model: nn.Module,
    dataset: Dataset,
    indices: Sequence[int],
    plan: LinePlan,
    on_input: Callable[[], None] | None = None,
) -> list[ConfidenceLine]:
    """The line of each chosen input; draws come from streams of its own, whichever inputs are chosen."""
    if not indices:
        raise InvalidValueError("choose at least one input to diagnose, got none")
    lines = []
    with at_rest(model):
        _, work = counted_pass(model, torch.from_numpy(dataset.inputs([indices[0]])))
    with openmp_threads(threads_for(plan.votes * work)):
        for index in indices:
            lines.append(_line(model, dataset, index, plan))
            if on_input is not None:
                on_input()
    return lines


def _line(model: nn.Module, dataset: Dataset, index: int, plan: LinePlan) -> ConfidenceLine:
    words = [plan.seed, index]
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(words).generate_state(1)[0]))
    x = torch.from_numpy(dataset.inputs([index]))
    label = int(dataset.labels[index])
    y = torch.tensor([label])
    noise = noise_copies(x, BatchNoise(plan.sigma), plan.copies, generator)
    adversary = pgd_path(model, x, y, noise, steps=plan.steps, step_size=plan.step_size, clip=plan.clip)[-1]
    ratios = np.linspace(0.0, 1.0, plan.points)
    with at_rest(model), torch.inference_mode():
        shares = [_shares(model, torch.lerp(x, adversary, float(ratio)), plan, generator) for ratio in ratios]
    distance = float(norms(adversary - x)[0])
    return ConfidenceLine(index, label, distance, ratios, np.stack(shares), adversary[0].numpy())


def _shares(
    model: nn.Module, x: Tensor, plan: LinePlan, generator: torch.Generator, rows: int = 250
) -> NDArray[np.float64]:
    """The share of noisy votes that each class gets at one point."""
    counts = None
    for start in range(0, plan.votes, rows):
        copies = x.expand(min(rows, plan.votes - start), *x.shape[1:])
        logits = model(copies + noise_copies(copies, BatchNoise(plan.sigma), 1, generator)[0])
        votes = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
        counts = votes if counts is None else counts + votes
    assert counts is not None
    return (counts.double() / plan.votes).numpy()
