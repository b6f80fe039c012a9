"""Stability training against its formula in numpy."""

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import BatchNoise
from smoothcert.objectives.stability import Stability
from tests.objectives import by_hand


def test_loss_by_hand():
    x, y = by_hand.inputs()
    linear = by_hand.LinearSoftmax()
    (noise,), _ = by_hand.unit_noise(x, 1)
    clean, noisy = linear.logits(x.numpy()), linear.logits(x.numpy() + 0.5 * noise)
    towards = -(by_hand.softmax(clean) * np.log(by_hand.softmax(noisy))).sum(axis=1).mean()
    expected = by_hand.cross_entropy(clean, y.numpy()) + 3 * towards
    loss = Stability(lam=3.0).loss(linear.torch(), x, y, BatchNoise(0.5), by_hand.stream())
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_bad_weight_is_named():
    with pytest.raises(InvalidValueError, match=r"lam must .* got -1"):
        Stability(lam=-1)
