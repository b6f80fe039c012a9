"""Settings without effect: said of what was typed, and refused where they leave nothing to train."""

from __future__ import annotations

import re
from typing import Any

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.training import Ramp, shipped_recipes, train_into
from smoothcert.training.idle import check_learns, without_effect
from smoothcert.training.runs import RunFiles
from tests.training.toys import halves, plan, recipe


@pytest.mark.parametrize(
    ("typed", "more", "named"),
    [
        ({"ramps": (Ramp("lr", 9999999999),)}, {}, r"--ramp lr:9999999999\b.*\b4\b"),
        ({"ramps": (Ramp("lr", 3, after=2),)}, {}, r"--ramp lr:3@2\b.*\b4\b.*\b2\b.*\b3\b"),
        (
            {"ramps": (Ramp("sigma", 0, 0.5, after=4),)},
            {},
            r"--ramp sigma=0\.5:0@4\b.*\b4\b.*\b0\.5\b",
        ),
        ({"ramps": (Ramp("lr", 1),)}, {}, r"--ramp lr:1\b"),
        ({"milestones": (2, 4, 50)}, {}, r"--milestones\b.*\b4, 50\b.*\b4\b"),
        ({"milestones": (2,)}, {"schedule": "cosine"}, "--milestones .*--schedule cosine"),
        ({"step_epochs": 2}, {"schedule": "cosine"}, "--step-epochs .*--schedule cosine"),
        ({"step_epochs": 2}, {"milestones": (2,)}, "--step-epochs .*--milestones"),
        ({"sigma_lr": 0.1}, {}, "--sigma-lr .*--data-dependent"),
        ({"nesterov": False}, {"optimizer": "adam"}, "--nesterov .*--optimizer adam"),
        ({"momentum": 0.5}, {"optimizer": "adadelta"}, "--momentum .*--optimizer adadelta"),
    ],
)
def test_what_was_typed_and_does_nothing_is_said(
    typed: dict[str, Any], more: dict[str, Any], named: str
) -> None:
    (warning,) = without_effect(plan(**typed, **more), typed)
    assert re.search(named, warning)
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
    assert without_effect(plan(**typed, **more), typed) == []


def test_no_shipped_recipe_says_anything_of_its_own() -> None:
    for name, shipped in shipped_recipes().items():
        short = shipped.changed({"epochs": 60})
        assert without_effect(short.plan, {"epochs": 60}) == [], name


@pytest.mark.parametrize("knob", ["sigma", "lr"])
def test_a_new_run_that_would_learn_nothing_is_refused(knob: str, tmp_path: Any) -> None:
    idle = recipe(ramps=(Ramp(knob, 0, after=5),))
    with pytest.raises(InvalidValueError, match=rf"{knob}:0@5.*\b2\b"):
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
