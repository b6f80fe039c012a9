"""What the losses of several objectives have in common: right slopes, few passes, no NaN, models left alone."""

import numpy as np
import pytest
import torch

import smoothcert.objectives.smoothadv
import smoothcert.objectives.smoothmix
from smoothcert.objectives import OBJECTIVES, BatchNoise, Passes
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.objectives.stability import Stability
from tests.objectives import by_hand

SMALL = [
    Stability(),
    Consistency(),
    Macer(copies=3, beta=2.0),
    Macer(lam=0.0),
    SmoothAdv(steps=3),
    SmoothAdv(attack="ddn", steps=3),
    SmoothAdv(attack="gradient-free", steps=3),
    SmoothMix(steps=2, alpha=0.3),
    SmoothMix(steps=2, alpha=0.3, one_step=True),
]


def loss_of(objective, model, x, y, sigma=0.3):
    return objective.loss(model, x, y, BatchNoise(sigma), by_hand.stream())


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_backward_is_the_slope_with_adversaries_held_fixed(objective, monkeypatch):
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    for module, name in [
        (smoothcert.objectives.smoothadv, "pgd"),
        (smoothcert.objectives.smoothadv, "ddn"),
        (smoothcert.objectives.smoothmix, "pgd_path"),
    ]:
        found = []
        attack = getattr(module, name)

        def once(*args, attack=attack, found=found, **knobs):
            found.append(found[0] if found else attack(*args, **knobs))
            return found[0]

        monkeypatch.setattr(module, name, once)
    by_hand.assert_gradient_is_the_slope(model, lambda: loss_of(objective, model, x, y))


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_one_sigma_for_each_input_or_for_all(objective):
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    alike = torch.full((len(x),), 0.25, dtype=torch.float64)
    assert loss_of(objective, model, x, y, 0.25) == loss_of(objective, model, x, y, alike)
    assert loss_of(objective, model, x, y, 0.25) != loss_of(objective, model, x, y, 2 * alike)


PASSES = [
    (Gaussian(), 0, 0, 1, 1),
    # objective, forward and backward passes of the attack, forward passes of the loss, rows for each input
    (Stability(), 0, 0, 2, 1),
    (Consistency(copies=3), 0, 0, 1, 3),
    (Macer(copies=5), 0, 0, 1, 5),
    (SmoothAdv(steps=4, copies=3), 4, 4, 1, 3),
    (SmoothAdv(attack="ddn", steps=4, copies=3), 4, 4, 1, 3),
    (SmoothAdv(attack="gradient-free", steps=4, copies=3), 4, 0, 1, 3),
    (SmoothAdv(steps=4, copies=3, epsilon=0.0), 0, 0, 1, 3),
    (SmoothAdv(attack="ddn", steps=4, copies=3, epsilon=0.0), 0, 0, 1, 3),
    (SmoothMix(steps=4, copies=3), 4, 4, 2, 3),
    (SmoothMix(steps=4, copies=3, one_step=True), 4, 4, 2, 3),
]


@pytest.mark.parametrize(("objective", "attack", "attack_back", "training", "rows"), PASSES, ids=str)
def test_a_step_costs_the_passes_it_declares(objective, attack, attack_back, training, rows):
    assert objective.passes() == Passes(rows, attack, attack_back, training)
    x, y = by_hand.inputs()
    model = by_hand.two_layers()
    passes = by_hand.Passes(model)
    loss = loss_of(objective, model, x, y)
    size = rows * len(x)
    assert passes.forward == [(size, False)] * attack + [(size, True)] * training
    assert passes.backward == [(size, False)] * attack_back
    # The attack leaves nothing on the weights.
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()
    assert passes.backward[attack_back:] == [(size, True)] * training


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_batch_norm_and_dropout(objective):
    torch.manual_seed(0)
    x, y = by_hand.inputs()
    model = by_hand.noisy_network()
    model[1].eval()
    trained = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss_of(objective, model, x, y).backward()
    assert [module.training for module in model.modules()] == trained
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_attacks_leave_batch_statistics_to_the_training_passes():
    x, y = by_hand.inputs()
    model = by_hand.noisy_network()
    loss_of(SmoothAdv(steps=3), model, x, y)
    assert model[1].num_batches_tracked == 1
    loss_of(SmoothMix(steps=3), model, x, y)
    assert model[1].num_batches_tracked == 3


@pytest.mark.parametrize("name", OBJECTIVES.names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_saturated_logits_give_finite_losses_and_gradients(name, dtype, sigma):
    # The inputs have no gradient either: the sign is flat.
    x, y = by_hand.inputs(12)
    model = by_hand.Saturated().to(dtype)
    loss = loss_of(OBJECTIVES[name](), model, x.to(dtype), y, sigma)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(model.weight.grad)


@pytest.mark.parametrize("objective", SMALL, ids=str)
def test_confident_networks_give_finite_losses_and_gradients(objective):
    x, y = by_hand.inputs()
    model = by_hand.LinearSoftmax(scale=1e4).torch().float()
    loss = loss_of(objective, model, x.float(), y)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    assert np.isfinite(loss.item())
