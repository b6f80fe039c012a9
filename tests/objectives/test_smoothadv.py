"""SmoothAdv against its attack and loss written out in numpy."""

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.smoothadv import SmoothAdv
from tests.objectives import by_hand


def test_loss_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = 0.5 * by_hand.unit_noise(x, 3)[0]
    point = x.numpy()
    for _ in range(4):
        point = point + 0.4 / 4 * 2 * linear.attack_direction(point, y.numpy(), noise)
        point = by_hand.project(np.clip(point, 0, 1), x.numpy(), 0.4)
    expected = by_hand.cross_entropy(linear.logits(point + noise), y.numpy())
    objective = SmoothAdv(epsilon=0.4, steps=4, copies=3)
    loss = objective.loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("attack", ["pgd", "ddn", "gradient-free"])
def test_without_a_radius_it_is_gaussian_training_with_copies(attack):
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise = 0.5 * by_hand.unit_noise(x, 4)[0]
    loss = SmoothAdv(attack=attack, epsilon=0.0).loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(
        by_hand.cross_entropy(linear.logits(x.numpy() + noise), y.numpy()), rel=1e-12
    )


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_adversaries_are_harder(attack):
    x, _ = by_hand.inputs()
    model = by_hand.two_layers()
    # DDN leaves inputs alone that are wrong already, so let none be.
    y = model(x).argmax(1)
    plain, attacked = (
        SmoothAdv(attack=attack, epsilon=epsilon).loss(model, x, y, BatchNoise(0.25), by_hand.stream())
        for epsilon in (0.0, 0.5)
    )
    assert attacked > plain + 0.05


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"attack": "pdg"}, "attack.*'pdg'.*'pgd'"),
        ({"epsilon": -1.0}, r"\bepsilon\b.*-1"),
        ({"steps": 0}, r"\bsteps\b.*\b0\b"),
        ({"copies": 0}, r"\bcopies\b.*\b0\b"),
        ({"attack": "gradient-free", "copies": 1}, r"\bcopies\b.*\b2\b.*\b1\b"),
        ({"ddn_gamma": 1.0}, r"\bddn_gamma\b.*\b1\.0"),
        ({"ddn_start_norm": 0.0}, r"\bddn_start_norm\b.*\b0\b"),
    ],
)
def test_bad_knobs_are_named(knobs, named):
    with pytest.raises(InvalidValueError, match=named):
        SmoothAdv(**knobs)
