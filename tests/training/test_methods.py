"""The objectives as people read about them."""

import dataclasses
import json
import re

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.knobs import Knob
from smoothcert.objectives import OBJECTIVES, Objective, Passes
from smoothcert.training import shipped_recipes
from smoothcert.training.methods import Method, describe, descriptions

# Forward and backward passes of the attack, those of the loss, rows for each input
COSTS = {
    "gaussian": [1, 1, 1],
    "stability": [2, 2, 1],
    "consistency": [1, 1, 2],
    "macer": [1, 1, 16],
    "smoothadv": [10, 10, 1, 1, 4],
    "smoothmix": [4, 4, 2, 2, 4],
}
KNOBS = {
    "gaussian": {},
    "stability": {"lam": 2.0},
    "consistency": {"lam": 5.0, "eta": 0.5, "copies": 2},
    "macer": {"lam": 16.0, "gamma": 8.0, "beta": 16.0, "copies": 16},
    "smoothadv": {
        "attack": "pgd",
        "epsilon": 1.0,
        "steps": 10,
        "copies": 4,
        "ddn_gamma": 0.05,
        "ddn_start_norm": 1.0,
        "clip": True,
    },
    "smoothmix": {
        "eta": 5.0,
        "steps": 4,
        "alpha": 1.0,
        "copies": 4,
        "one_step": False,
        "one_step_norm": None,
        "max_norm": None,
        "only_correct": True,
        "clip": True,
    },
}


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def test_every_objective_is_described():
    assert [method.name for method in descriptions()] == OBJECTIVES.names() == sorted(COSTS)


@pytest.mark.parametrize("name", OBJECTIVES.names())
class TestEveryMethod:
    def test_cost(self, name):
        assert numbers(describe(name).cost) == COSTS[name]

    def test_knobs_with_defaults_and_help(self, name):
        knobs = describe(name).knobs
        assert {knob.name: knob.default for knob in knobs} == KNOBS[name]
        assert all(knob.help for knob in knobs)

    def test_summary_paper_and_text(self, name):
        method = describe(name)
        assert method.summary
        assert "\n" not in method.summary
        assert method.text.startswith(method.summary)
        assert "``" not in method.text + method.summary
        assert method.paper[-4:].isdigit()

    def test_recipes_are_those_of_the_objective(self, name):
        assert describe(name).recipes == tuple(
            each for each, recipe in shipped_recipes().items() if recipe.plan.objective_name == name
        )
        assert f"mnist-{name}-0.25" in describe(name).recipes

    def test_plain_values(self, name):
        plain = json.loads(json.dumps(describe(name).to_json()))
        assert {knob["name"]: knob["default"] for knob in plain["knobs"]} == KNOBS[name]
        assert plain["passes"]["rows"] == describe(name).passes.rows


def test_the_cost_leaves_out_what_is_not_done():
    method = Method("x", "", "", "", Passes(1, attack_forward=3), (), ())
    assert numbers(method.cost) == [3, 1, 1, 1]
    both = dataclasses.replace(method, passes=Passes(2, attack_forward=3, attack_backward=1, training=4))
    assert numbers(both.cost) == [3, 1, 4, 4, 2]


def test_an_unknown_method_is_guessed():
    with pytest.raises(InvalidValueError, match=r"'mace'.*'macer'"):
        describe("mace")


def test_a_new_objective_describes_itself(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Toy(Objective):
        """One line.

        And ``more``
        of it.
        """

        paper = "Nobody, 2030"
        weight: float = 2.0

        def loss(self, model, x, y, noise, generator):
            return model(x).sum()

    monkeypatch.setitem(OBJECTIVES._members, "toy", Toy)
    method = describe("toy")
    assert (method.summary, method.text, method.paper) == (
        "One line",
        "One line.\n\nAnd more of it.",
        "Nobody, 2030",
    )
    assert method.knobs == (Knob("weight", float, 2.0),)
    assert (method.recipes, numbers(method.cost)) == ((), [1, 1, 1])
