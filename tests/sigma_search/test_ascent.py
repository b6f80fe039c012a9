"""The papers' objective and its gradient, against closed forms and differences."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import ndtri
from torch import nn

from smoothcert.errors import InvalidValueError
from smoothcert.sigma_search import radius_gradient


class Constant(nn.Module):
    """The same logits for every input, which still take part in the graph."""

    def __init__(self, *probabilities: float) -> None:
        super().__init__()
        self.logits = torch.tensor(probabilities, dtype=torch.float64).log()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits + 0 * x.sum(1, keepdim=True)


class Slope(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([1.5 - x[:, 0] ** 2, x[:, 1], x[:, 0] - x[:, 1]], 1)


def unit(samples: int = 4, inputs: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((samples, inputs, 2), generator=generator, dtype=torch.float64)


SIGMA = torch.tensor([0.2, 0.5, 1.1], dtype=torch.float64)
X = torch.zeros(3, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("probabilities", "gap"),
    [
        ((0.7, 0.2, 0.1), ndtri(0.7) - ndtri(0.2)),
        ((0.995, 0.004, 0.001), ndtri(0.98) - ndtri(0.02)),  # both means are clamped
    ],
)
def test_constant_means_give_a_constant_slope(probabilities: tuple[float, ...], gap: float) -> None:
    radius, gradient = radius_gradient(Constant(*probabilities), X, unit(), SIGMA)
    torch.testing.assert_close(radius, SIGMA / 2 * gap)
    torch.testing.assert_close(gradient, torch.full((3,), gap / 2, dtype=torch.float64))


def test_uniform_noise_has_the_l1_radius() -> None:
    radius, gradient = radius_gradient(Constant(0.995, 0.004, 0.001), X, unit(), SIGMA, "uniform")
    torch.testing.assert_close(radius, math.sqrt(3) * SIGMA * 0.991)
    torch.testing.assert_close(gradient, torch.full((3,), math.sqrt(3) * 0.991, dtype=torch.float64))


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_the_gradient_is_that_of_the_reparameterised_mean(noise: str) -> None:
    _, gradient = radius_gradient(Slope(), X, unit(), SIGMA, noise)
    above, _ = radius_gradient(Slope(), X, unit(), SIGMA + 1e-6, noise)
    below, _ = radius_gradient(Slope(), X, unit(), SIGMA - 1e-6, noise)
    torch.testing.assert_close(gradient, (above - below) / 2e-6, rtol=1e-5, atol=1e-7)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidValueError, match=r"noise.*\(3, 2\).*\(4, 2, 2\)"):
        radius_gradient(Slope(), X, unit(inputs=2), SIGMA)
    with pytest.raises(InvalidValueError, match=r"noise.*'laplace'"):
        radius_gradient(Slope(), X, unit(), SIGMA, "laplace")
