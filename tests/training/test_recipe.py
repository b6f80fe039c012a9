"""Recipes read, written and changed (shipped ones: test_shipped_recipes); and the objectives as people read of them."""

import dataclasses
import json
import re

import pytest

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.knobs import Knob
from smoothcert.objectives import OBJECTIVES, Objective, StepCost
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.training.plan import Ramp, TrainPlan
from smoothcert.training.recipe import (
    Method,
    Recipe,
    describe,
    descriptions,
    find_recipe,
    make_recipe,
    read_recipe,
    shipped_recipes,
)

SHORT = 'dataset = "digits"\nsigma = 0.5\n'


@pytest.fixture
def written(tmp_path):
    """A function that reads a recipe from a text."""

    def read(text):
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return read_recipe(tmp_path / "mine.toml")

    return read


def test_the_least_recipe_leaves_the_rest_to_the_defaults(written):
    assert written(SHORT) == Recipe("digits", TrainPlan(0.5), name="mine")


def test_every_field_is_read(written):
    fields = {
        "epochs": 7, "batch_size": 64, "lr": 0.1, "momentum": 0.8, "weight_decay": 0, "schedule": '"cosine"',
        "step_epochs": 3, "milestones": [2, 5], "ramps": '["eta:10", "lr=0.01:5@1"]', "flip": "true",
        "shift": 4, "holdout": 50, "precision": '"bfloat16"', "shards": 2, "seed": 11,
    }  # fmt: skip
    read = written(
        'source = "a paper"\npublished_acr = 1\ndataset = "npz:some/where.npz"\narchitecture = "lenet"\n'
        "normalise = false\ninputs = 500\nsigma = 1\n"
        + "".join(f"{name} = {value}\n" for name, value in fields.items())
        + '[objective]\nname = "smoothmix"\neta = 1\none_step = true\nmax_norm = 2\n'
    )
    values = fields | {
        "schedule": "cosine", "milestones": (2, 5), "ramps": (Ramp("eta", 10), Ramp("lr", 5, 0.01, 1)),
        "weight_decay": 0.0, "flip": True, "precision": "bfloat16",
    }  # fmt: skip
    plan = TrainPlan(1.0, SmoothMix(eta=1.0, one_step=True, max_norm=2.0), **values)
    assert read == Recipe("npz:some/where.npz", plan, "lenet", False, 500, "mine", "a paper", 1.0)


def test_what_is_written_reads_back_the_same(written):
    for name in OBJECTIVES.names():
        ramps = (Ramp("sigma", 3, 1e-9),)
        changed = TrainPlan(1 / 3, OBJECTIVES[name](), lr=1e-7, ramps=ramps, milestones=(1,))
        recipe = Recipe('folder:with "quotes" \\ and ü', changed, source="é\n\tσ", name="mine", inputs=3)
        assert written(recipe.to_toml()) == recipe


def test_names_that_are_tables_and_none_are_plain_in_json():
    plain = make_recipe({"dataset": "digits", "sigma": 0.5}, "smoothmix", {"eta": 1.0}).to_json()
    objective = plain["objective"]
    assert (objective["name"], objective["eta"], objective["max_norm"]) == ("smoothmix", 1.0, None)
    assert (plain["shards"], plain["ramps"], plain["milestones"]) == (None, [], [])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sigma = 0.5", r"\bdataset\b"),
        ('dataset = "digits"', r"\bsigma\b"),
        (SHORT + "epoch = 3", "'epoch'.*'epochs'"),
        (SHORT + 'name = "x"', "'name'"),
        (SHORT + "plan = 3", "'plan'"),
        (SHORT + "epochs = 3.5", r"\bepochs\b.*3\.5"),
        (SHORT + "epochs = 0", r"\bepochs\b.*\b0\b"),
        (SHORT + 'lr = "0.1"', r"\blr\b.*'0\.1'"),
        (SHORT + "lr = nan", r"\blr\b.*\bnan\b"),
        (SHORT + "flip = 1", r"\bflip\b.*\b1\b"),
        (SHORT + "milestones = 30", r"\bmilestones\b.*\b30\b"),
        (SHORT + 'schedule = "stpe"', "schedule.*'stpe'.*'step'"),
        (SHORT + "inputs = 0", r"\binputs\b.*\b0\b"),
        (SHORT + "architecture = 5", r"\barchitecture\b.*\b5\b"),
        (SHORT + "source = 5", r"\bsource\b.*\b5\b"),
        (SHORT + 'ramps = "eta:10"', r"\bramps\b.*'eta:10'"),
        (SHORT + "ramps = [10]", r"\bramps\b.*\[10\]"),
        (SHORT + 'ramps = ["eta"]', "'eta'.*EPOCHS"),
        (SHORT + 'ramps = ["eta:10"]', "'eta'.*lr, sigma"),
        (SHORT + 'objective = "macer"', r"\[objective\].*'macer'"),
        (SHORT + "[objective]\nlam = 3.0", r"\[objective\].*\{'lam': 3\.0\}"),
        (SHORT + '[objective]\nname = "mcer"', "'mcer'.*'macer'"),
        (SHORT + '[objective]\nname = "macer"\nlmd = 3', "macer.*'lmd'.*'lam'"),
        (SHORT + '[objective]\nname = "macer"\nlam = "a"', r"\blam\b.*'a'"),
        (SHORT + '[objective]\nname = "macer"\nlam = -1', r"\blam\b.*-1"),
        (SHORT + "epochs =", ""),  # the rest is Python's message about TOML
        (SHORT + SHORT, ""),
    ],
)
def test_a_mistake_is_named_with_the_file(text, named, written):
    with pytest.raises(DataError, match=rf"mine\.toml.*{named}"):
        written(text)


def test_files_that_are_none(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere", "folder", "bytes"):
        with pytest.raises(DataError, match=rf"{name}\.toml"):
            find_recipe(str(tmp_path / f"{name}.toml"))
    with pytest.raises(InvalidValueError, match=r"'mnist-macer-0\.6'.*'mnist-macer-0\.5'"):
        find_recipe("mnist-macer-0.6")


def published(**changes):
    plan = TrainPlan(0.5, Macer(lam=6.0), ramps=(Ramp("lam", 0, after=3), Ramp("lr", 5)))
    return Recipe(
        "mnist", dataclasses.replace(plan, **changes), "lenet", published_acr=1.5, source="S", name="n"
    )


def test_nothing_changed_is_what_was_published():
    assert published().changed({}) is not None
    assert published().changed({}) == published()
    assert published().changed({"epochs": 90, "dataset": "mnist"}, "macer", {"lam": 6.0}) == published()


def test_what_is_changed_is_no_longer_what_was_published():
    for values in ({"epochs": 10}, {"seed": 1}, {"architecture": "small-cnn"}, {"inputs": 100}):
        changed = published().changed(values)
        assert changed.published_acr is None
        assert (changed.name, changed.source) == ("n", "S")
        ((name, value),) = values.items()
        assert value in (getattr(changed.plan, name, None), getattr(changed, name, None))
        assert changed.plan.objective == Macer(lam=6.0)
    changed = published().changed({}, knobs={"gamma": 4})
    assert changed.plan.objective == Macer(lam=6.0, gamma=4.0)
    assert changed.published_acr is None


def test_another_objective_has_its_own_knobs_and_ramps():
    changed = published().changed({}, "consistency", {"eta": 1.0})
    assert changed.plan.objective == Consistency(eta=1.0)  # lam isn't macer's 6
    assert changed.plan.ramps == (Ramp("lr", 5),)
    assert changed.published_acr is None
    assert published().changed({}, "gaussian").plan.objective == GaussianAugmentation()
    changed = published().changed({"ramps": ["eta:3"]}, "smoothmix")
    assert changed.plan.ramps == (Ramp("eta", 3),)


def test_changes_and_values_alone_are_checked():
    with pytest.raises(InvalidValueError, match=r"macer.*'epsilon'.*smoothadv"):
        published().changed({}, knobs={"epsilon": 1.0})
    with pytest.raises(InvalidValueError, match=r"'epoch'.*'epochs'"):
        published().changed({"epoch": 1})
    with pytest.raises(InvalidValueError, match=r"'mace'.*'macer'"):
        published().changed({}, "mace")
    made = make_recipe({"dataset": "digits", "sigma": 1, "ramps": ["lam:5"]}, "macer", {"copies": 4})
    assert made == Recipe("digits", TrainPlan(1.0, Macer(copies=4), ramps=(Ramp("lam", 5),)))
    with pytest.raises(InvalidValueError, match="dataset"):
        make_recipe({"sigma": 1.0})


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
        "attack": "pgd", "epsilon": 1.0, "steps": 10, "copies": 4, "ddn_gamma": 0.05, "ddn_start_norm": 1.0,
        "clip": True,
    },
    "smoothmix": {
        "eta": 5.0, "steps": 4, "alpha": 1.0, "copies": 4, "one_step": False, "one_step_norm": None,
        "max_norm": None, "only_correct": True, "clip": True,
    },
}  # fmt: skip


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def test_every_objective_is_described_and_an_unknown_one_guessed():
    assert [method.name for method in descriptions()] == OBJECTIVES.names() == sorted(COSTS)
    with pytest.raises(InvalidValueError, match=r"'mace'.*'macer'"):
        describe("mace")


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_every_method_is_described(name):
    method = describe(name)
    assert numbers(method.cost) == COSTS[name]
    assert {knob.name: knob.default for knob in method.knobs} == KNOBS[name]
    assert all(knob.help for knob in method.knobs)
    assert method.summary
    assert "\n" not in method.summary
    assert method.text.startswith(method.summary)
    assert "``" not in method.text + method.summary
    assert method.paper[-4:].isdigit()
    assert method.recipes == tuple(
        each for each, recipe in shipped_recipes().items() if recipe.plan.objective_name == name
    )
    assert f"mnist-{name}-0.25" in method.recipes
    plain = json.loads(json.dumps(method.to_json()))
    assert {knob["name"]: knob["default"] for knob in plain["knobs"]} == KNOBS[name]
    assert plain["passes"]["rows"] == method.passes.rows


def test_the_cost_leaves_out_what_is_not_done():
    method = Method("x", "", "", "", StepCost(1, attack_forward=3), (), ())
    assert numbers(method.cost) == [3, 1, 1, 1]
    both = dataclasses.replace(method, passes=StepCost(2, attack_forward=3, attack_backward=1, training=4))
    assert numbers(both.cost) == [3, 1, 4, 4, 2]


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
    texts = ("One line", "One line.\n\nAnd more of it.", "Nobody, 2030")
    assert (method.summary, method.text, method.paper) == texts
    assert method.knobs == (Knob("weight", float, 2.0),)
    assert (method.recipes, numbers(method.cost)) == ((), [1, 1, 1])
