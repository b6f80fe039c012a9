"""What a σ vector is worth on inputs kept apart: clean accuracy and mean certified area of the smoothed classifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import Dataset
from smoothcert.noise import NOISES, diagonal_noise
from smoothcert.noise_fit.objective import certified_area
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.streams import Purpose, stream_seed
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.smoothing import Certification, CertifyPlan, SmoothedClassifier


@dataclass(frozen=True)
class Validation:
    """``accuracy``: share of inputs that n0 votes put in the right class. ``area``: mean of O_CA over the right ones
    that are certified, None if there are none; ``certified`` is their share.
    """

    accuracy: float
    certified: float
    area: float | None


def validate(
    base: BaseClassifier,
    dataset: Dataset,
    indices: NDArray[np.int64],
    sigmas: NDArray[np.float64],
    plan: FitPlan,
    execution: Execution,
    on_votes: Callable[[int], None] | None = None,
) -> Validation:
    """CERTIFY with the paper's bound on the inputs ``indices``; the same votes at every σ of a fit.

    They are no votes of ``certify``, whatever its seed: a σ may be chosen by these figures and certified afterwards.
    """
    statement = CertifyPlan(
        diagonal_noise(plan.noise, sigmas),
        bound="clopper-pearson",
        n0=plan.validation_n0,
        n=plan.validation_n,
        alpha=plan.alpha,
        seed=stream_seed(plan.seed, Purpose.VALIDATION),
    )
    smoothed = SmoothedClassifier(base, statement, execution=execution)
    inputs: list[tuple[int, NDArray[Any]]] = [(int(index), dataset.input(int(index))) for index in indices]
    # In order of index: a mean of floats depends on it, and answers come as they are ready.
    answers = sorted(smoothed.certify_each(inputs, on_votes), key=lambda answer: answer.index)
    right = [answer for answer in answers if answer.candidate == dataset.labels[answer.index]]
    areas = [_area(answer, sigmas, plan.noise) for answer in right if not answer.abstained]
    return Validation(
        len(right) / len(answers),
        len(areas) / len(answers),
        math.fsum(areas) / len(areas) if areas else None,
    )


def _area(answer: Certification, sigmas: NDArray[np.float64], noise: str) -> float:
    gap = NOISES[noise].soft_gap(answer.bounds.lower, answer.bounds.upper)
    return certified_area(sigmas, float(gap), noise)
