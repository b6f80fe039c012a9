"""Settings without effect: said of what was typed, and refused where they leave nothing to train."""

from __future__ import annotations

from typing import Any

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.training import Ramp, shipped_recipes, train_into
from smoothcert.training.idle import check_learns, without_effect
from smoothcert.training.runs import RunFiles
from tests.training.toys import halves, plan, recipe


def told(typed: dict[str, Any], **more: Any) -> str:
    return "; ".join(without_effect(plan(**typed, **more), typed))


@pytest.mark.parametrize(
    ("typed", "more", "message"),
    [
        ({"ramps": (Ramp("lr", 9999999999),)}, {}, "--ramp lr:9999999999 doesn't end within 4 epochs"),
        ({"ramps": (Ramp("lr", 3, after=2),)}, {}, "lr goes 2 of 3 steps of its way"),
        ({"ramps": (Ramp("sigma", 0, 0.5, after=4),)}, {}, "never begins in 4 epochs: sigma stays at 0.5"),
        ({"ramps": (Ramp("lr", 1),)}, {}, "--ramp lr:1 has no effect"),
        ({"milestones": (2, 4, 50)}, {}, "the rate doesn't drop after 4, 50 of 4 epochs"),
        ({"milestones": (2,)}, {"schedule": "cosine"}, "--milestones has no effect with --schedule cosine"),
        ({"step_epochs": 2}, {"schedule": "cosine"}, "--step-epochs has no effect with --schedule cosine"),
        ({"step_epochs": 2}, {"milestones": (2,)}, "--step-epochs has no effect beside --milestones"),
        ({"sigma_lr": 0.1}, {}, "--sigma-lr has no effect without --data-dependent"),
        ({"nesterov": False}, {"optimizer": "adam"}, "--nesterov has no effect with --optimizer adam"),
        ({"momentum": 0.5}, {"optimizer": "adadelta"}, "--momentum has no effect"),
    ],
)
def test_what_was_typed_and_does_nothing_is_said(
    typed: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    assert message in told(typed, **more)
    assert without_effect(plan(**typed, **more), ()) == [], "what nobody typed says nothing"


@pytest.mark.parametrize(
    ("typed", "more"),
    [
        ({"ramps": (Ramp("lr", 4),)}, {}),
        ({"ramps": (Ramp("lr", 0, after=3),)}, {}),
        ({"milestones": (1, 3)}, {}),
        ({"step_epochs": 90}, {}),
        ({"sigma_lr": 0.1}, {"data_dependent": True}),
        ({"momentum": 0.5}, {"optimizer": "adam"}),
    ],
)
def test_what_takes_effect_says_nothing(typed: dict[str, Any], more: dict[str, Any]) -> None:
    assert told(typed, **more) == ""


def test_no_shipped_recipe_says_anything_of_its_own() -> None:
    for name, shipped in shipped_recipes().items():
        short = shipped.changed({"epochs": 60})
        assert without_effect(short.plan, {"epochs": 60}) == [], name


@pytest.mark.parametrize(
    ("knob", "message"), [("sigma", "trained with noise"), ("lr", "no weight would move")]
)
def test_a_new_run_that_would_learn_nothing_is_refused(knob: str, message: str, tmp_path: Any) -> None:
    idle = recipe(ramps=(Ramp(knob, 0, after=5),))
    with pytest.raises(InvalidValueError, match=f"keeps {knob} at 0 in all 2 epochs, so that .*{message}"):
        train_into(tmp_path / "run", idle, halves())
    assert not (tmp_path / "run").exists()
    check_learns(plan(sigma=0.0))
    check_learns(plan(ramps=(Ramp(knob, 0, after=3),)))
    check_learns(plan(ramps=(Ramp(knob, 0, 0.125, after=5),)))


def test_one_that_was_begun_before_goes_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = recipe(ramps=(Ramp("sigma", 0, after=5),))
    with monkeypatch.context() as before:
        before.setattr("smoothcert.training.runs.check_learns", lambda _: None)
        history = train_into(tmp_path, idle, halves())
    assert RunFiles(tmp_path).statement.exists()
    assert train_into(tmp_path, idle, halves()) == history
