import math

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.training import TrainPlan


def test_defaults_are_the_shared_recipe_of_the_mnist_experiments():
    plan = TrainPlan(sigma=0.25)
    assert (plan.objective, plan.epochs, plan.batch_size, plan.lr) == ("gaussian", 90, 256, 0.01)
    assert (plan.momentum, plan.weight_decay, plan.schedule, plan.step_epochs) == (0.9, 1e-4, "step", 30)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sigma", -0.5),
        ("sigma", math.nan),
        ("sigma", math.inf),
        ("epochs", 0),
        ("epochs", 2.5),
        ("batch_size", 0),
        ("lr", 0.0),
        ("lr", -0.1),
        ("lr", math.nan),
        ("momentum", 1.0),
        ("momentum", 0.0),
        ("weight_decay", -1e-4),
        ("schedule", "stpe"),
        ("step_epochs", 0),
        ("seed", -1),
        ("objective", "gausian"),
    ],
)
def test_bad_value_is_named(field, value):
    with pytest.raises(InvalidValueError) as caught:
        TrainPlan(**{"sigma": 0.25, field: value})
    assert field in str(caught.value)
    assert str(value) in str(caught.value)


def test_step_schedule():
    plan = TrainPlan(0.25, epochs=90, lr=0.01, step_epochs=30)
    rates = [plan.learning_rate(epoch) for epoch in (0, 29, 30, 59, 60, 89)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])


def test_cosine_schedule():
    plan = TrainPlan(0.25, epochs=4, lr=0.2, schedule="cosine")
    half = math.sqrt(0.5)
    rates = [plan.learning_rate(epoch) for epoch in range(4)]
    assert rates == pytest.approx([0.2, 0.1 * (1 + half), 0.1, 0.1 * (1 - half)])


def test_objective_by_name_or_instance():
    assert TrainPlan(0.25).make_objective() == Gaussian()
    mine = Gaussian()
    assert TrainPlan(0.25, objective=mine).make_objective() is mine
    assert TrainPlan(0.25, objective=mine).objective_name == "gaussian"
