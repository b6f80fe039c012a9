import math

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.training import Ramp, TrainPlan
from tests.training.toys import Recorder


def ramped(*texts, **fields):
    return TrainPlan(**({"sigma": 0.25} | fields), ramps=tuple(Ramp.parse(text) for text in texts))


def test_defaults_are_the_shared_recipe_of_the_mnist_experiments():
    plan = TrainPlan(sigma=0.25)
    assert (plan.objective, plan.epochs, plan.batch_size, plan.lr) == (Gaussian(), 90, 256, 0.01)
    assert (plan.momentum, plan.weight_decay, plan.schedule, plan.step_epochs) == (0.9, 1e-4, "step", 30)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sigma", -0.5),
        ("sigma", math.nan),
        ("sigma", math.inf),
        ("objective", "gausian"),
        ("objective", Gaussian),
        ("epochs", 0),
        ("epochs", 2.5),
        ("epochs", True),
        ("batch_size", 0),
        ("lr", 0.0),
        ("lr", -0.1),
        ("lr", math.nan),
        ("momentum", 1.0),
        ("momentum", 0.0),
        ("momentum", math.nan),
        ("weight_decay", -1e-4),
        ("optimizer", "sdg"),
        ("schedule", "stpe"),
        ("step_factor", 1.0),
        ("step_factor", 0.0),
        ("step_epochs", 0),
        ("milestones", (0,)),
        ("milestones", (3.5,)),
        ("milestones", (5, 3)),
        ("milestones", (3, 3)),
        ("shift", -1),
        ("holdout", -1),
        ("precision", "float8"),
        ("shards", 0),
        ("seed", -1),
    ],
)
def test_bad_value_is_named(field, value):
    with pytest.raises(InvalidValueError) as caught:
        TrainPlan(**{"sigma": 0.25, field: value})
    assert field in str(caught.value)
    assert (str(value).strip("(,)")) in str(caught.value)


def test_a_choice_misspelt_is_guessed():
    with pytest.raises(InvalidValueError, match=r"'cosin'.*'cosine'.*\bstep\b"):
        TrainPlan(0.25, schedule="cosin")


def rates(plan, epochs):
    return [plan.at(epoch).lr for epoch in epochs]


def test_step_schedule():
    plan = TrainPlan(0.25, epochs=90, lr=0.01, step_epochs=30)
    expected = [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001]
    assert rates(plan, (0, 29, 30, 59, 60, 89)) == pytest.approx(expected)


def test_a_step_may_be_smaller():
    plan = TrainPlan(0.25, epochs=4, lr=1.0, step_epochs=1, step_factor=0.7)
    assert rates(plan, range(4)) == pytest.approx([1.0, 0.7, 0.49, 0.343])
    plan = TrainPlan(0.25, epochs=4, lr=1.0, milestones=(1, 3), step_factor=0.5)
    assert rates(plan, range(4)) == pytest.approx([1.0, 0.5, 0.5, 0.25])


def test_milestones_take_the_place_of_intervals():
    plan = TrainPlan(0.25, epochs=440, lr=0.01, step_epochs=1, milestones=(200, 400))
    expected = [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001]
    assert rates(plan, (0, 199, 200, 399, 400, 439)) == pytest.approx(expected)


def test_cosine_schedule():
    plan = TrainPlan(0.25, epochs=4, lr=0.2, schedule="cosine")
    half = math.sqrt(0.5)
    assert rates(plan, range(4)) == pytest.approx([0.2, 0.1 * (1 + half), 0.1, 0.1 * (1 - half)])


def test_a_ramp_of_the_rate_rises_to_what_the_schedule_says():
    plan = ramped("lr=0.01:4", lr=0.1, step_epochs=3)
    assert rates(plan, range(5)) == pytest.approx(
        [0.0325, 0.055, 0.0775, 0.01, 0.01]  # to 0.1, and from epoch 3 on 0.01
    )


def test_a_ramp_of_the_noise():
    plan = ramped("sigma=0.25:2@1", sigma=1.0)
    assert [plan.at(epoch).sigma for epoch in range(4)] == pytest.approx([0.25, 0.625, 1.0, 1.0])
    assert plan.sigma == 1.0


def test_a_float_knob_rises_and_the_others_stay():
    plan = ramped("epsilon:4", objective=SmoothAdv(epsilon=2.0, steps=3))
    assert [plan.at(epoch).objective.epsilon for epoch in range(5)] == pytest.approx(
        [0.5, 1.0, 1.5, 2.0, 2.0]
    )
    assert plan.at(0).objective == SmoothAdv(epsilon=0.5, steps=3)
    assert plan.at(0).lr == plan.lr


def test_a_whole_knob_stays_whole_and_at_least_one():
    plan = ramped("steps:6", objective=SmoothMix(steps=4))
    # 4/6, 8/6, 12/6, 16/6, 20/6, 24/6
    assert [plan.at(epoch).objective.steps for epoch in range(7)] == [1, 1, 2, 3, 3, 4, 4]
    jump = ramped("steps:0@2", objective=SmoothMix(steps=4))
    assert [jump.at(epoch).objective.steps for epoch in range(3)] == [1, 1, 4]


def test_macer_at_its_largest_noise_defers_the_hinge():
    plan = ramped("lam:0@2", objective=Macer(lam=12.0), milestones=(2,))
    assert [plan.at(epoch).objective.lam for epoch in range(4)] == [0.0, 0.0, 12.0, 12.0]
    assert rates(plan, range(4)) == pytest.approx([0.01, 0.01, 0.001, 0.001])


def test_several_ramps_work_together():
    plan = ramped("eta:10", "one_step_norm:5", "lr:2", objective=SmoothMix(eta=5.0, one_step_norm=1.0))
    settings = plan.at(0)
    assert (settings.objective.eta, settings.objective.one_step_norm) == pytest.approx((0.5, 0.2))
    assert settings.lr == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "objective", "named"),
    [
        ("epsilom:10", SmoothAdv(), "'epsilom'.*'epsilon'"),
        ("epsilon:10", Gaussian(), "'epsilon'.*lr, sigma$"),
        ("copies:3", Macer(), "'copies'.*lr, sigma, lam"),
        ("attack:3", SmoothAdv(), "'attack'.*lr, sigma, epsilon"),
        ("clip:3", SmoothAdv(), "'clip'.*lr, sigma, epsilon"),
        ("loss:3", Gaussian(), "'loss'.*lr, sigma$"),
        ("epochs:3", Gaussian(), "'epochs'.*lr, sigma$"),
        ("one_step_norm:3", SmoothMix(), "one_step_norm:3"),
        ("gamma:0@3", Macer(), r"\bgamma\b.*\b0\b"),
        ("lr=-1:5", Gaussian(), "ramps.*lr=-1:5"),
        ("sigma=-1:5@2", Gaussian(), "ramps.*sigma=-1:5@2"),
    ],
)
def test_a_ramp_that_cannot_be_is_refused_before_training(text, objective, named):
    with pytest.raises(InvalidValueError, match=named):
        ramped(text, objective=objective)


def test_two_ramps_of_one_knob_contradict_each_other():
    with pytest.raises(InvalidValueError, match=r"ramps.*\blam\b"):
        ramped("lam:2", "lam:0@5", objective=Macer())


@pytest.mark.parametrize(
    ("objective", "inputs"),
    [(Gaussian(), 100), (Consistency(copies=2), 50), (SmoothMix(copies=4), 25), (SmoothAdv(copies=8), 12)],
)
def test_a_step_takes_as_many_inputs_as_its_rows_allow(objective, inputs):
    assert TrainPlan(0.25, objective=objective, batch_size=100).inputs_per_step == inputs


def test_a_batch_holds_all_copies_of_an_input():
    assert TrainPlan(0.25, objective=SmoothAdv(copies=16), batch_size=16).inputs_per_step == 1
    with pytest.raises(InvalidValueError, match=r"batch_size.*\b16\b.*smoothadv.*\b15\b"):
        TrainPlan(0.25, objective=SmoothAdv(copies=16), batch_size=15)


@pytest.mark.parametrize("copies", [1, 2, 16])
def test_macer_counts_inputs_whatever_the_number_of_copies(copies):
    """MACER's Table 10 varies k and nothing else."""
    assert TrainPlan(0.25, objective=Macer(copies=copies), batch_size=8).inputs_per_step == 8


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_the_objective_goes_by_its_registered_name(name):
    assert TrainPlan(0.25, objective=OBJECTIVES[name]()).objective_name == name


def test_an_unregistered_objective_goes_by_its_class():
    assert TrainPlan(0.25, objective=Recorder()).objective_name == "Recorder"
