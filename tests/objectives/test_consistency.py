"""Consistency regularization against its formula in numpy."""

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.consistency import Consistency
from tests.objectives import by_hand


def test_loss_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    noise, _ = by_hand.unit_noise(x, 3)
    logits = linear.logits(x.numpy() + 0.5 * noise)
    probs = by_hand.softmax(logits)
    mean = probs.mean(axis=0)
    divergence = (mean * (np.log(mean) - np.log(probs))).sum(axis=2).mean()
    entropy = -(mean * np.log(mean)).sum(axis=1).mean()
    expected = by_hand.cross_entropy(logits, y.numpy()) + 10 * divergence + 0.7 * entropy
    loss = Consistency(lam=10.0, eta=0.7, copies=3).loss(
        linear.torch(), x, y, BatchNoise(0.5), by_hand.stream()
    )
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"lam": -1.0}, r"\blam\b.*-1"),
        ({"eta": float("nan")}, r"\beta\b.*\bnan\b"),
        ({"copies": 1}, r"\bcopies\b.*\b1\b"),
    ],
)
def test_bad_knobs_are_named(knobs, named):
    with pytest.raises(InvalidValueError, match=named):
        Consistency(**knobs)
