"""The optimisers against their formulas, one step and two."""

import pytest
import torch
from torch import nn

from smoothcert.training import TrainPlan, train
from smoothcert.training.optimizers import make_optimizer
from tests.training.toys import InDouble, halves, new_model

LR, DECAY = 0.05, 0.01


def after_steps(steps=2, **changes):
    """A weight of 2 after steps along the gradients 1, 0.5, …"""
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    plan = TrainPlan(0.25, **({"lr": LR, "weight_decay": DECAY} | changes))
    optimizer = make_optimizer([weight], plan)
    for step in range(steps):
        weight.grad = torch.tensor([0.5**step], dtype=torch.float64)
        optimizer.step()
    return weight.item()


def by_momentum(nesterov, apart):
    weight, velocity = 2.0, 0.0
    for gradient in (1.0, 0.5):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        velocity = 0.9 * velocity + gradient
        weight -= LR * (gradient + 0.9 * velocity if nesterov else velocity)
    return weight


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_sgd(nesterov, apart):
    found = after_steps(nesterov=nesterov, decoupled_decay=apart)
    assert found == pytest.approx(by_momentum(nesterov, apart), rel=1e-14)


@pytest.mark.parametrize("apart", [True, False])
def test_adam(apart):
    weight, first, second = 2.0, 0.0, 0.0
    for step, gradient in enumerate((1.0, 0.5), start=1):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        first, second = 0.8 * first + 0.2 * gradient, 0.999 * second + 0.001 * gradient**2
        weight -= LR * (first / (1 - 0.8**step)) / ((second / (1 - 0.999**step)) ** 0.5 + 1e-8)
    found = after_steps(optimizer="adam", momentum=0.8, decoupled_decay=apart)
    assert found == pytest.approx(weight, rel=1e-12)


def test_adam_with_decay_apart_is_adamw():
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    reference = torch.optim.AdamW([weight], LR, (0.9, 0.999), weight_decay=DECAY)
    for gradient in (1.0, 0.5):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        reference.step()
    assert after_steps(optimizer="adam", decoupled_decay=True) == weight.item()


@pytest.mark.parametrize("apart", [True, False])
def test_adadelta(apart):
    weight, squares, moves = 2.0, 0.0, 0.0
    for gradient in (1.0, 0.5):
        if apart:
            weight *= 1 - LR * DECAY
        else:
            gradient += DECAY * weight
        squares = 0.9 * squares + 0.1 * gradient**2
        move = gradient * ((moves + 1e-6) / (squares + 1e-6)) ** 0.5
        moves = 0.9 * moves + 0.1 * move**2
        weight -= LR * move
    found = after_steps(optimizer="adadelta", decoupled_decay=apart)
    assert found == pytest.approx(weight, rel=1e-12)


def test_a_weight_without_a_gradient_stays():
    unused = nn.Parameter(torch.tensor([2.0]))
    optimizer = make_optimizer([unused], TrainPlan(0.25, decoupled_decay=True, weight_decay=0.5))
    optimizer.step()
    assert unused.item() == 2.0


@pytest.mark.parametrize(
    "changes",
    [{}, {"nesterov": False}, {"optimizer": "adam"}, {"optimizer": "adadelta"}, {"decoupled_decay": True}],
)
def test_the_loop_uses_what_the_plan_says(changes):
    """One full batch without noise is one step of that optimiser."""
    plan = TrainPlan(0.0, epochs=1, batch_size=12, lr=LR, weight_decay=DECAY, **changes)
    dataset, model, reference = halves(12), InDouble(new_model()), new_model().double()
    train(model, dataset, plan)
    x, y = torch.from_numpy(dataset.inputs(slice(None))).double(), torch.from_numpy(dataset.labels)
    nn.functional.cross_entropy(reference(x), y).backward()
    make_optimizer(reference.parameters(), plan).step()
    for found, expected in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
