"""SmoothMix against Algorithm 1 of its paper written out in numpy."""

import numpy as np
import pytest
import torch

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.smoothmix import SmoothMix
from tests.objectives import by_hand


def by_algorithm(linear, x, y, sigma, objective):
    noise, generator = by_hand.unit_noise(x, objective.copies)
    noise = sigma * noise
    ratio = torch.rand(len(x), generator=generator, dtype=torch.float64).numpy()[:, None] / 2
    x, y = x.numpy(), y.numpy()

    def feasible(point, norm):
        point = np.clip(point, 0, 1) if objective.clip else point
        return point if norm is None else by_hand.project(point, x, norm)

    points = [x]
    for _ in range(objective.steps):
        step = objective.alpha * linear.attack_direction(points[-1], y, noise)
        points.append(feasible(points[-1] + step, objective.max_norm))
    start = x
    if objective.one_step:
        norm = objective.alpha if objective.one_step_norm is None else objective.one_step_norm
        start = feasible(points[1], norm)
    smoothed = linear.smoothed(start, noise)
    mixed = (1 - ratio) * start + ratio * points[-1]
    target = (1 - ratio) * smoothed + ratio / smoothed.shape[1]
    divergence = (target * np.log(target / by_hand.softmax(linear.logits(mixed + noise)))).sum(axis=2)
    right = smoothed.argmax(axis=1) == y
    if objective.only_correct:
        divergence = divergence * right
    natural = by_hand.cross_entropy(linear.logits(start + noise), y)
    return natural + objective.eta * divergence.mean(), right


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"only_correct": False},
        {"clip": False},
        {"max_norm": 0.6},
        {"one_step": True},
        {"one_step": True, "one_step_norm": 0.1},
        {"one_step": True, "steps": 1, "alpha": 8.0, "max_norm": 1.0},
    ],
    ids=str,
)
def test_loss_by_hand(knobs):
    x, _ = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    y = torch.from_numpy(linear.logits(x.numpy()).argmax(axis=1))
    y[0] = (y[0] + 1) % 3
    objective = SmoothMix(**{"eta": 2.0, "steps": 3, "alpha": 0.3, "copies": 3} | knobs)
    expected, right = by_algorithm(linear, x, y, 0.25, objective)
    assert not right.all()
    loss = objective.loss(linear.torch(), x, y, BatchNoise(0.25), by_hand.stream())
    assert loss.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"eta": -1.0}, r"\beta\b.*-1"),
        ({"steps": 0}, r"\bsteps\b.*\b0\b"),
        ({"alpha": 0.0}, r"\balpha\b.*\b0\b"),
        ({"copies": 0}, r"\bcopies\b.*\b0\b"),
        ({"one_step_norm": -1.0}, r"\bone_step_norm\b.*-1"),
        ({"max_norm": 0.0}, r"\bmax_norm\b.*\b0\b"),
    ],
)
def test_bad_knobs_are_named(knobs, named):
    with pytest.raises(InvalidValueError, match=named):
        SmoothMix(**knobs)
