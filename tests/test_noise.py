"""Noise has the distribution it describes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES, Gaussian, Uniform


def drawn(noise: Gaussian | Uniform) -> np.ndarray:
    out = torch.empty(20_000)
    noise.fill(out, torch.Generator().manual_seed(3))
    return out.double().numpy()


def test_gaussian_follows_the_normal_law() -> None:
    assert stats.kstest(drawn(Gaussian(0.7)), stats.norm(scale=0.7).cdf).pvalue > 1e-3


def test_uniform_follows_the_uniform_law_with_standard_deviation_sigma() -> None:
    width = 0.7 * math.sqrt(3)
    values = drawn(Uniform(0.7))
    assert stats.kstest(values, stats.uniform(-width, 2 * width).cdf).pvalue > 1e-3
    assert values.std() == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize("name", NOISES.names())
@pytest.mark.parametrize("sigma", [0.0, -0.5, math.nan, math.inf])
def test_sigma_must_be_positive(name: str, sigma: float) -> None:
    with pytest.raises(InvalidValueError, match="sigma must be positive and finite"):
        NOISES[name](sigma)  # type: ignore[call-arg]
