"""The certified area and its surrogate, against numpy by hand and finite differences."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from torch import nn

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.regions.bodies import Ellipsoid
from smoothcert.smoothing.fits.objective import (
    LEAST_PROBABILITY,
    GroupScales,
    LowRankScales,
    certified_area,
    gap_slope,
    log_gaps,
    starting_vector,
)

from .toys import WEIGHTS, Linear


def test_the_area_is_the_log_volume_up_to_the_unit_ball():
    sigmas, gap = np.array([0.5, 2.0, 0.1]), 1.3
    region = Ellipsoid(np.zeros(3), gap * sigmas)
    unit = math.log(4 / 3 * math.pi)
    assert certified_area(sigmas, gap) + unit == pytest.approx(region.log_volume(), rel=1e-12)
    expected = math.log(3**0.5 * 0.5 * 0.4) + math.log(3**0.5 * 2.0 * 0.4)
    assert certified_area(np.array([0.5, 2.0]), 0.4, "uniform") == pytest.approx(expected, rel=1e-12)


def softmax(logits: np.ndarray) -> np.ndarray:
    grown = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(grown / grown.sum(-1, keepdims=True))


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_gaps_by_hand(noise, beta):
    logits = np.random.default_rng(1).normal(scale=1.5, size=(9, 40, 3))
    logits[:, :25, 0] += 2.0
    labels = np.zeros(40, dtype=np.int64)
    found, counted, right = log_gaps(torch.tensor(logits), torch.tensor(labels), noise, beta)
    means = softmax(beta * logits).mean(0)
    votes = np.stack([(logits.argmax(-1) == c).sum(0) for c in range(3)], 1)
    assert right.tolist() == (votes.argmax(1) == 0).tolist()
    gap = ndtri(means[:, 0]) if noise == "gaussian" else means[:, 0] - means[:, 1:].max(1)
    enough = means[:, 0] > 0.51 if noise == "gaussian" else gap > 0.02
    expected = (votes.argmax(1) == 0) & enough
    assert counted.tolist() == expected.tolist()
    assert 5 < expected.sum() < 40
    assert found.numpy()[expected] == pytest.approx(np.log(gap[expected]), rel=1e-10)


def test_nothing_infinite_at_the_edges():
    """p̂ = 1, p̂ = ½, p̂ just below ½ while most votes are right, and p̂ = 0."""
    sure = torch.tensor([[100.0, 0.0]]).expand(4, 2)
    torn = torch.tensor([[0.0, 0.0]]).expand(4, 2)
    # Three weak votes for the class and one strong vote against it: right by votes, without a gap by softmax.
    weak = torch.tensor([[0.1, 0.0], [0.1, 0.0], [0.1, 0.0], [0.0, 9.0]])
    wrong = torch.tensor([[0.0, 100.0]]).expand(4, 2)
    logits = torch.stack([sure, torn, weak, wrong], 1).clone().requires_grad_()
    found, counted, right = log_gaps(logits, torch.zeros(4, dtype=torch.int64), "gaussian")
    assert counted.tolist() == [True, False, False, False]
    assert right.tolist() == [True, True, True, False]
    assert torch.isfinite(found).all()
    assert float(found[0].detach()) == pytest.approx(math.log(ndtri(0.9999)), rel=1e-4)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_the_gradient_against_finite_differences(noise):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)).double().requires_grad_(False)
    x, unit = torch.randn(12, 5).double(), torch.randn(7, 12, 5).double()
    labels = model(x).argmax(1)
    sigmas = torch.linspace(0.1, 0.4, 5).double()

    def total(at: torch.Tensor) -> float:
        return gap_slope(model, x, labels, unit, at, noise, beta=4.0).log_gap

    slope = gap_slope(model, x, labels, unit, sigmas, noise, beta=4.0)
    assert slope.counted >= 6
    assert slope.inputs == 12
    for i in range(5):
        step = torch.zeros(5).double()
        step[i] = 1e-6
        expected = (total(sigmas + step) - total(sigmas - step)) / 2e-6
        assert float(slope.gradient[i]) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_the_mean_softmax_of_a_steep_linear_model_is_its_probability():
    """p_A = Φ(m/‖σ⊙w‖), so the surrogate agrees with the closed form."""
    w, sigmas = np.array(WEIGHTS), np.array([0.1, 0.4, 0.5, 0.9])
    x = torch.full((1, 4), 0.1)
    margin = float(x[0].numpy() @ w)
    unit = torch.randn(40_000, 1, 4, generator=torch.Generator().manual_seed(3))
    slope = gap_slope(
        Linear(steepness=300.0), x, torch.zeros(1, dtype=torch.int64), unit, torch.tensor(sigmas), "gaussian"
    )
    exact = margin / np.linalg.norm(sigmas * w)
    assert 0.6 < ndtr(exact) < 0.95
    assert slope.log_gap == pytest.approx(math.log(exact), abs=0.02)


def test_slopes_add_up_and_need_a_gradient():
    torch.manual_seed(1)
    x, unit, labels = torch.randn(8, 4), torch.randn(6, 8, 4), torch.zeros(8, dtype=torch.int64)
    sigmas = torch.full((4,), 0.2).double()
    whole = gap_slope(Linear(), x, labels, unit, sigmas, "gaussian")
    parts = [
        gap_slope(Linear(), x[part], labels[part], unit[:, part], sigmas, "gaussian")
        for part in (slice(0, 3), slice(3, 8))
    ]
    joined = parts[0] + parts[1]
    assert (joined.counted, joined.right, joined.inputs) == (whole.counted, whole.right, whole.inputs)
    assert joined.gradient.numpy() == pytest.approx(whole.gradient.numpy(), rel=1e-4, abs=1e-6)

    class Cut(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x.sum(1), -x.sum(1)], 1).detach()

    one = torch.ones(2, 4)
    with pytest.raises(ModelError):
        gap_slope(Cut(), one, torch.zeros(2, dtype=torch.int64), one[None], torch.ones(4), "gaussian")
    assert ndtri(LEAST_PROBABILITY) > 0.02


def test_a_group_shares_its_factor_and_sums_its_gradients():
    scales = GroupScales(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0]))
    (theta,) = scales.parameters()
    assert scales.sigmas([theta]).tolist() == [0.1, 0.2, 0.3]
    theta[0] = np.log(2.0)
    assert scales.sigmas([theta]) == pytest.approx([0.2, 0.2, 0.6])
    theta.requires_grad_()
    weights = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * scales.log_factors([theta])).sum(), theta)
    assert gradient.tolist() == [101.0, 10.0]


def test_low_rank_starts_constant_and_stays_of_its_rank():
    scales = LowRankScales(np.full((2, 6, 5), 0.3), 2, seed=0)
    u, v = scales.parameters()
    assert (scales.sigmas([u, v]) == 0.3).all()
    u.requires_grad_()
    v.requires_grad_()
    (gradient,) = torch.autograd.grad(scales.log_factors([u, v]).sum(), v)
    assert (gradient != 0).any()
    moved = torch.randn(v.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for channel in np.log(scales.sigmas([u.detach(), moved]) / 0.3):
        assert np.linalg.matrix_rank(channel, tol=1e-9) == 2


def test_scales_that_make_no_sense():
    with pytest.raises(InvalidValueError, match=r"rank.*\(4,\).*--groups"):
        LowRankScales(np.ones(4), 1, 0)
    with pytest.raises(InvalidValueError, match=r"rank.*\b3\b.*\b4\b"):
        LowRankScales(np.ones((1, 3, 4)), 4, 0)
    with pytest.raises(InvalidValueError, match=r"\(1,\).*--scale"):
        starting_vector((2,), 1.0, np.array([1.0, 0.0]))
    assert starting_vector((2,), 0.5, np.array([4.0, 10.0])).tolist() == [2.0, 5.0]
