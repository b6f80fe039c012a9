"""Methods as losses for a loop of one's own: the same numbers as the training loop's, and reproducible."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from smoothcert import SmoothingLoss
from smoothcert.errors import InvalidValueError
from smoothcert.noise import Uniform
from smoothcert.objectives import OBJECTIVES, BatchNoise

X = torch.rand((12, 1, 4, 4), generator=torch.Generator().manual_seed(1))
Y = torch.arange(12) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize("method", OBJECTIVES.names())
def test_every_method_is_a_loss_that_trains(method: str) -> None:
    model = network()
    criterion = SmoothingLoss(method, sigma=0.25, seed=3)
    expected = OBJECTIVES[method]().loss(network(), X, Y, BatchNoise(0.25), torch.Generator().manual_seed(3))
    loss = criterion(model, X, Y)
    assert loss.item() == expected.item()
    loss.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    assert criterion(model, X, Y).item() != loss.item(), "each call draws fresh noise"


def test_knobs_noise_and_seeds() -> None:
    twice = SmoothingLoss("consistency", sigma=0.5, noise="uniform", seed=0, copies=4, lam=1)
    assert repr(twice) == "SmoothingLoss('consistency', sigma=0.5, noise='uniform')"
    assert twice.objective == OBJECTIVES["consistency"](copies=4, lam=1.0)  # type: ignore[call-arg]
    assert twice.noise.kind is Uniform
    assert SmoothingLoss(twice.objective, sigma=0.5, seed=0).objective is twice.objective
    torch.manual_seed(7)
    first = SmoothingLoss(sigma=0.5)(network(), X, Y).item()
    torch.manual_seed(7)
    assert SmoothingLoss(sigma=0.5)(network(), X, Y).item() == first
    assert SmoothingLoss(sigma=0.5)(network(), X, Y).item() != first


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidValueError, match="smoothmix"):
        SmoothingLoss("smoothmx", sigma=0.5)
    with pytest.raises(InvalidValueError, match=r"consistency.*'lamb'.*'lam'"):
        SmoothingLoss("consistency", sigma=0.5, lamb=1.0)
    with pytest.raises(InvalidValueError, match=r"sigma.*\b0\.0"):
        SmoothingLoss(sigma=0.0)
    with pytest.raises(InvalidValueError, match="copies"):
        SmoothingLoss(OBJECTIVES["gaussian"](), sigma=0.5, copies=3)
    with pytest.raises(InvalidValueError, match=r"seed.*-1"):
        SmoothingLoss(sigma=0.5, seed=-1)
