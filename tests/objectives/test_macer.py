"""MACER against its formula in numpy and scipy, and where Φ⁻¹ would leave the finite numbers."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import norm

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.macer import Macer
from tests.objectives import by_hand

KNOBS = {"lam": 6.0, "gamma": 2.0, "beta": 1.5, "copies": 5}


def by_formula(linear, x, y, sigma):
    noise, _ = by_hand.unit_noise(x, KNOBS["copies"])
    labels, rows = y.numpy(), np.arange(len(y))
    logits = linear.logits(x.numpy() + sigma.reshape(-1, 1) * noise)
    classification = -np.log(by_hand.softmax(logits).mean(axis=0)[rows, labels])
    sharp = by_hand.softmax(KNOBS["beta"] * logits).mean(axis=0)
    rivals = sharp.copy()
    rivals[rows, labels] = 0
    gap = norm.ppf(sharp[rows, labels]) - norm.ppf(rivals.max(axis=1))
    right = sharp.argmax(axis=1) == labels
    hinge = np.maximum(KNOBS["gamma"] - gap, 0) * right
    return classification.mean(), (KNOBS["lam"] * sigma / 2 * hinge).mean(), right, hinge > 0


@pytest.mark.parametrize("sigma", [0.5, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])
def test_loss_by_hand(sigma):
    x, _ = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    y = torch.from_numpy(linear.logits(x.numpy()).argmax(axis=1))
    y[0] = (y[0] + 1) % 3
    classification, robustness, right, active = by_formula(linear, x, y, np.broadcast_to(sigma, 6))
    # The example is worth something only if it has inputs of all three kinds.
    assert not right.all()
    assert (right & active).any()
    assert (right & ~active).any()
    given = sigma if isinstance(sigma, float) else torch.tensor(sigma)
    objective = Macer(**KNOBS)
    loss = objective.loss(linear.torch(), x, y, BatchNoise(given), by_hand.stream())
    # float32 for the per-example sigma: 1e-7.
    assert loss.item() == pytest.approx(classification + robustness, rel=1e-12 if given is sigma else 1e-6)
    plain = dataclasses.replace(objective, lam=0.0)
    loss = plain.loss(linear.torch(), x, y, BatchNoise(given), by_hand.stream())
    assert loss.item() == pytest.approx(classification, rel=1e-12 if given is sigma else 1e-6)


class Scores(torch.nn.Module):
    """The same logits for every input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def hinge_and_gradient(lead, dtype, gamma=8.0):
    scores = Scores([lead, 0.0]).to(dtype)
    x, y = torch.zeros(1, 2, dtype=dtype), torch.tensor([0])
    objective = Macer(lam=1.0, gamma=gamma, beta=1.0, copies=1)
    whole = objective.loss(scores, x, y, BatchNoise(1.0), by_hand.stream())
    plain = dataclasses.replace(objective, lam=0.0).loss(scores, x, y, BatchNoise(1.0), by_hand.stream())
    (gradient,) = torch.autograd.grad(whole - plain, scores.logits)
    return (whole - plain).item(), gradient[0].item()


def test_single_precision_keeps_the_digits_of_confident_predictions():
    # At a lead of 9.5 the probability is 1 − 7.5e-5: in float32, ẑ_y knows 1 − ẑ_y to no better than a per mille.
    for lead in (1.0, 5.0, 9.5):
        for single, double in zip(
            hinge_and_gradient(lead, torch.float32), hinge_and_gradient(lead, torch.float64)
        ):
            assert single == pytest.approx(double, rel=2e-5)


def test_hinge_is_right_far_beyond_the_published_margin():
    lead = 50.0
    expected = (20 - 2 * norm.isf(1 / (1 + np.exp(lead)))) / 2
    value, gradient = hinge_and_gradient(lead, torch.float32, gamma=20.0)
    assert value == pytest.approx(expected, rel=1e-4)
    assert gradient == pytest.approx(hinge_and_gradient(lead, torch.float64, gamma=20.0)[1], rel=1e-4)


@pytest.mark.parametrize("lead", [-1e4, -200.0, -16.0, 0.0, 16.0, 200.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [8.0, 100.0])
def test_no_lead_gives_a_gradient_that_is_not_finite(lead, dtype, gamma):
    assert np.isfinite(hinge_and_gradient(lead, dtype, gamma)).all()


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"lam": -1.0}, r"\blam\b.*-1"),
        ({"gamma": 0.0}, r"\bgamma\b.*\b0\b"),
        ({"beta": -2.0}, r"\bbeta\b.*-2"),
        ({"copies": 0}, r"\bcopies\b.*\b0\b"),
    ],
)
def test_bad_knobs_are_named(knobs, named):
    with pytest.raises(InvalidValueError, match=named):
        Macer(**knobs)
