"""Plans of training: their fields, schedules and ramps, and settings without effect."""

import itertools
import math
import re
import subprocess
import sys

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.ramps import Ramp
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.training.plan import TrainPlan, check_learns, without_effect
from smoothcert.training.recipe import shipped_recipes
from smoothcert.training.runs import RunFiles, train_into
from tests.training.toys import Recorder, halves, plan, recipe


def test_what_the_command_line_makes_options_of_does_not_import_torch():
    lines = """
import sys
import smoothcert.architectures.base, smoothcert.service.limits, smoothcert.training.plan
from smoothcert.datasets import DATASETS
from smoothcert.objectives import OBJECTIVES
from smoothcert.training.recipe import descriptions
assert 'mnist' in DATASETS and 'gaussian' in OBJECTIVES and descriptions()
assert 'torch' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", lines], check=True, timeout=120)


def ramped(*texts, **fields):
    return TrainPlan(**({"sigma": 0.25} | fields), ramps=tuple(Ramp.parse(text) for text in texts))


def test_defaults_are_the_shared_recipe_of_the_mnist_experiments():
    plan = TrainPlan(sigma=0.25)
    assert (plan.objective, plan.epochs, plan.batch_size, plan.lr) == (GaussianAugmentation(), 90, 256, 0.01)
    assert (plan.momentum, plan.weight_decay, plan.schedule, plan.step_epochs) == (0.9, 1e-4, "step", 30)


BAD_VALUES = {
    "sigma": (-0.5, math.nan, math.inf), "objective": ("gausian", GaussianAugmentation),
    "epochs": (0, 2.5, True), "batch_size": (0,), "lr": (0.0, -0.1, math.nan),
    "momentum": (1.0, 0.0, math.nan), "weight_decay": (-1e-4,), "optimizer": ("sdg",), "schedule": ("stpe",),
    "step_factor": (1.0, 0.0), "step_epochs": (0,), "milestones": ((0,), (3.5,), (5, 3), (3, 3)),
    "shift": (-1,), "holdout": (-1,), "precision": ("float8",), "shards": (0,), "seed": (-1,),
}  # fmt: skip


@pytest.mark.parametrize("field", BAD_VALUES)
def test_bad_values_are_named(field):
    for value in BAD_VALUES[field]:
        with pytest.raises(InvalidValueError) as caught:
            TrainPlan(**{"sigma": 0.25, field: value})
        assert field in str(caught.value)
        assert (str(value).strip("(,)")) in str(caught.value)


def rates(plan, epochs):
    return [plan.at(epoch).lr for epoch in epochs]


def test_schedules():
    def rates(asked, **fields):
        plan = TrainPlan(0.25, **fields)
        return [plan.at(epoch).lr for epoch in asked]

    steps = [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001]
    assert rates((0, 29, 30, 59, 60, 89), epochs=90, lr=0.01, step_epochs=30) == pytest.approx(steps)
    milestones = {"epochs": 440, "step_epochs": 1, "milestones": (200, 400)}
    assert rates((0, 199, 200, 399, 400, 439), lr=0.01, **milestones) == pytest.approx(steps)
    small = rates(range(4), epochs=4, lr=1.0, step_epochs=1, step_factor=0.7)
    assert small == pytest.approx([1.0, 0.7, 0.49, 0.343])
    small = rates(range(4), epochs=4, lr=1.0, milestones=(1, 3), step_factor=0.5)
    assert small == pytest.approx([1.0, 0.5, 0.5, 0.25])
    half = math.sqrt(0.5)
    cosine = rates(range(4), epochs=4, lr=0.2, schedule="cosine")
    assert cosine == pytest.approx([0.2, 0.1 * (1 + half), 0.1, 0.1 * (1 - half)])
    with pytest.raises(InvalidValueError, match=r"'cosin'.*'cosine'.*\bstep\b"):
        TrainPlan(0.25, schedule="cosin")


def test_ramps_of_the_rate_and_the_noise():
    plan = ramped("lr=0.01:4", lr=0.1, step_epochs=3)
    assert rates(plan, range(5)) == pytest.approx(
        [0.0325, 0.055, 0.0775, 0.01, 0.01]  # to 0.1, and from epoch 3 on 0.01
    )
    plan = ramped("sigma=0.25:2@1", sigma=1.0)
    assert [plan.at(epoch).sigma for epoch in range(4)] == pytest.approx([0.25, 0.625, 1.0, 1.0])
    assert plan.sigma == 1.0


def test_a_float_knob_rises_and_a_whole_one_stays_whole():
    plan = ramped("epsilon:4", objective=SmoothAdv(epsilon=2.0, steps=3))
    assert [plan.at(epoch).objective.epsilon for epoch in range(5)] == pytest.approx(
        [0.5, 1.0, 1.5, 2.0, 2.0]
    )
    assert plan.at(0).objective == SmoothAdv(epsilon=0.5, steps=3)
    assert plan.at(0).lr == plan.lr
    plan = ramped("steps:6", objective=SmoothMix(steps=4))
    # 4/6, 8/6, 12/6, 16/6, 20/6, 24/6
    assert [plan.at(epoch).objective.steps for epoch in range(7)] == [1, 1, 2, 3, 3, 4, 4]
    jump = ramped("steps:0@2", objective=SmoothMix(steps=4))
    assert [jump.at(epoch).objective.steps for epoch in range(3)] == [1, 1, 4]


def test_several_ramps_work_together_and_macers_defers_the_hinge():
    plan = ramped("eta:10", "one_step_norm:5", "lr:2", objective=SmoothMix(eta=5.0, one_step_norm=1.0))
    settings = plan.at(0)
    assert (settings.objective.eta, settings.objective.one_step_norm) == pytest.approx((0.5, 0.2))
    assert settings.lr == pytest.approx(0.005)
    plan = ramped("lam:0@2", objective=Macer(lam=12.0), milestones=(2,))
    assert [plan.at(epoch).objective.lam for epoch in range(4)] == [0.0, 0.0, 12.0, 12.0]
    assert rates(plan, range(4)) == pytest.approx([0.01, 0.01, 0.001, 0.001])


def test_a_ramp_that_cannot_be_is_refused_before_training():
    for text, objective, named in [
        ("epsilom:10", SmoothAdv(), "'epsilom'.*'epsilon'"),
        ("epsilon:10", GaussianAugmentation(), "'epsilon'.*lr, sigma$"),
        ("copies:3", Macer(), "'copies'.*lr, sigma, lam"),
        ("attack:3", SmoothAdv(), "'attack'.*lr, sigma, epsilon"),
        ("clip:3", SmoothAdv(), "'clip'.*lr, sigma, epsilon"),
        ("loss:3", GaussianAugmentation(), "'loss'.*lr, sigma$"),
        ("epochs:3", GaussianAugmentation(), "'epochs'.*lr, sigma$"),
        ("one_step_norm:3", SmoothMix(), "one_step_norm:3"),
        ("gamma:0@3", Macer(), r"\bgamma\b.*\b0\b"),
        ("lr=-1:5", GaussianAugmentation(), "ramps.*lr=-1:5"),
        ("sigma=-1:5@2", GaussianAugmentation(), "ramps.*sigma=-1:5@2"),
        ("lam:2 lam:0@5", Macer(), r"ramps.*\blam\b"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            ramped(*text.split(), objective=objective)


def test_a_step_takes_as_many_inputs_as_its_rows_allow():
    """MACER counts inputs: its Table 10 varies k and nothing else."""
    for objective, inputs in (
        (GaussianAugmentation(), 100),
        (Consistency(copies=2), 50),
        (SmoothMix(copies=4), 25),
        (SmoothAdv(copies=8), 12),
        *((Macer(copies=copies), 100) for copies in (1, 2, 16)),
    ):
        assert TrainPlan(0.25, objective=objective, batch_size=100).inputs_per_step == inputs
    assert TrainPlan(0.25, objective=SmoothAdv(copies=16), batch_size=16).inputs_per_step == 1
    with pytest.raises(InvalidValueError, match=r"batch_size.*\b16\b.*smoothadv.*\b15\b"):
        TrainPlan(0.25, objective=SmoothAdv(copies=16), batch_size=15)


def test_the_objective_goes_by_its_registered_name_or_its_class():
    for name in OBJECTIVES.names():
        assert TrainPlan(0.25, objective=OBJECTIVES[name]()).objective_name == name
    assert TrainPlan(0.25, objective=Recorder()).objective_name == "Recorder"


def test_text_and_back():
    for text, ramp in {
        "epsilon:10": Ramp("epsilon", 10),
        "lr=0.001:5": Ramp("lr", 5, start=0.001),
        "lam:0@60": Ramp("lam", 0, after=60),
        "one_step_norm=0.5:3@2": Ramp("one_step_norm", 3, start=0.5, after=2),
        "lr=0.0012345678901:5": Ramp("lr", 5, start=0.0012345678901),
        "sigma=3:1": Ramp("sigma", 1, start=3.0),
    }.items():
        assert Ramp.parse(text) == ramp
        assert str(ramp) == text
    for start in (1e-300, 1 / 3, 12345678.9, -2.0, 1e22):
        ramp = Ramp("lam", 4, start, 1)
        assert Ramp.parse(str(ramp)) == ramp


BAD_TEXTS = (
    "|eps|eps:|:10|eps:ten|eps:-1|eps:1.5|eps:10@|eps@3|eps=:10|eps=x:10| eps:10|eps:10@-2|e s:3|eps=1=2:3"
)


def test_a_text_of_another_form_shows_the_form():
    for text in BAD_TEXTS.split("|"):
        with pytest.raises(InvalidValueError, match=r"\[=START\]:EPOCHS\[@AFTER\]") as caught:
            Ramp.parse(text)
        assert repr(text) in str(caught.value)
    for start in ("nan", "inf", "-inf"):
        with pytest.raises(InvalidValueError, match=rf"\blr\b.*{start}"):
            Ramp.parse(f"lr={start}:5")
    for field, value in itertools.product(("epochs", "after"), (-1, 1.5, True)):
        with pytest.raises(InvalidValueError, match=f"(epochs|{field}).*{value}"):
            Ramp(**{"option": "lr", "epochs": 1, field: value})


def test_the_values_of_a_ramp():
    values = [Ramp("epsilon", 10).value(2.0, epoch) for epoch in range(12)]
    assert values == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.0, 2.0])
    assert values[9:] == [2.0, 2.0, 2.0]
    values = [Ramp("lam", 4, start=1.0, after=2).value(3.0, epoch) for epoch in range(8)]
    assert values == pytest.approx([1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0])
    assert [Ramp("sigma", 2, start=1.0).value(0.5, epoch) for epoch in range(3)] == [0.75, 0.5, 0.5]
    assert [Ramp("lam", 0, after=2).value(6.0, epoch) for epoch in range(4)] == [0.0, 0.0, 6.0, 6.0]
    assert Ramp("lam", 0).value(6.0, 0) == 6.0


def test_a_shorter_schedule_has_shorter_ramps_that_begin_earlier():
    for text, share, scaled in [
        ("epsilon:10", 0.5, "epsilon:5"),
        ("epsilon:10", 0.01, "epsilon:1"),
        ("lam:0@30", 6 / 90, "lam:0@2"),  # what waited a third of the time still does
        ("lam:0@30", 0.001, "lam:0@1"),
        ("one_step_norm=0.5:30@60", 2 / 3, "one_step_norm=0.5:20@40"),
    ]:
        assert str(Ramp.parse(text).scaled(share)) == scaled


def test_what_was_typed_and_does_nothing_is_said():
    for typed, more, named in [
        ({"ramps": (Ramp("lr", 9999999999),)}, {}, r"--ramp lr:9999999999\b.*\b4\b"),
        ({"ramps": (Ramp("lr", 3, after=2),)}, {}, r"--ramp lr:3@2\b.*\b4\b.*\b2\b.*\b3\b"),
        ({"ramps": (Ramp("sigma", 0, 0.5, after=4),)}, {}, r"--ramp sigma=0\.5:0@4\b.*\b4\b.*\b0\.5\b"),
        ({"ramps": (Ramp("lr", 1),)}, {}, r"--ramp lr:1\b"),
        ({"milestones": (2, 4, 50)}, {}, r"--milestones\b.*\b4, 50\b.*\b4\b"),
        ({"milestones": (2,)}, {"schedule": "cosine"}, "--milestones .*--schedule cosine"),
        ({"step_epochs": 2}, {"schedule": "cosine"}, "--step-epochs .*--schedule cosine"),
        ({"step_epochs": 2}, {"milestones": (2,)}, "--step-epochs .*--milestones"),
        ({"sigma_lr": 0.1}, {}, "--sigma-lr .*--data-dependent"),
        ({"nesterov": False}, {"optimizer": "adam"}, "--nesterov .*--optimizer adam"),
        ({"momentum": 0.5}, {"optimizer": "adadelta"}, "--momentum .*--optimizer adadelta"),
    ]:
        (warning,) = without_effect(plan(**typed, **more), typed)
        assert re.search(named, warning)
        assert without_effect(plan(**typed, **more), ()) == [], "what nobody typed says nothing"


def test_what_takes_effect_says_nothing():
    for typed, more in [
        ({"ramps": (Ramp("lr", 4),)}, {}),
        ({"ramps": (Ramp("lr", 0, after=3),)}, {}),
        ({"milestones": (1, 3)}, {}),
        ({"step_epochs": 90}, {}),
        ({"sigma_lr": 0.1}, {"data_dependent": True}),
        ({"momentum": 0.5}, {"optimizer": "adam"}),
    ]:
        assert without_effect(plan(**typed, **more), typed) == []


def test_no_shipped_recipe_says_anything_of_its_own():
    for name, shipped in shipped_recipes().items():
        short = shipped.changed({"epochs": 60})
        assert without_effect(short.plan, {"epochs": 60}) == [], name


@pytest.mark.parametrize("knob", ["sigma", "lr"])
def test_a_new_run_that_would_learn_nothing_is_refused(knob, tmp_path):
    idle = recipe(ramps=(Ramp(knob, 0, after=5),))
    with pytest.raises(InvalidValueError, match=rf"{knob}:0@5.*\b2\b"):
        train_into(tmp_path / "run", idle, halves())
    assert not (tmp_path / "run").exists()
    check_learns(plan(sigma=0.0))
    check_learns(plan(ramps=(Ramp(knob, 0, after=3),)))
    check_learns(plan(ramps=(Ramp(knob, 0, 0.125, after=5),)))


def test_one_that_was_begun_before_goes_on(tmp_path, monkeypatch):
    idle = recipe(ramps=(Ramp("sigma", 0, after=5),))
    with monkeypatch.context() as before:
        before.setattr("smoothcert.training.runs.check_learns", lambda _: None)
        history = train_into(tmp_path, idle, halves())
    assert RunFiles(tmp_path).statement.exists()
    assert train_into(tmp_path, idle, halves()) == history
