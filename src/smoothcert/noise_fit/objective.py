"""The certified area, and its surrogate with a gradient in every σ (Tecot et al., non-uniform smoothing, §4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from smoothcert.errors import ModelError
from smoothcert.noise import DEFAULT_NOISE, NOISES

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
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    unit: Tensor,
    sigmas: Tensor,
    noise: str,
    beta: float = 1.0,
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
