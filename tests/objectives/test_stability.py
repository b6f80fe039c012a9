"""Stability training against its formula in numpy."""

import numpy as np
import pytest
from torch import nn

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


def test_clean_and_noisy_rows_are_batches_of_their_own():
    """As released: the statistics of the clean rows are those of the clean rows alone."""
    x, y = by_hand.inputs()
    seen = []
    model = nn.Sequential(nn.BatchNorm1d(x.shape[1], dtype=x.dtype), nn.Linear(x.shape[1], 3, dtype=x.dtype))
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    Stability().loss(model, x, y, BatchNoise(5.0), by_hand.stream())
    assert model[0].num_batches_tracked == 2
    for output in seen:
        assert output.mean(0).abs().max() < 1e-9
        assert (output.var(0, unbiased=False) - 1).abs().max() < 1e-2


def test_bad_weight_is_named():
    with pytest.raises(InvalidValueError, match=r"\blam\b.*-1"):
        Stability(lam=-1)
