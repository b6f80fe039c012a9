"""Recipes: reading, writing and changing them. Those that are shipped are in test_shipped_recipes."""

import dataclasses

import pytest

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.consistency import Consistency
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.training import Ramp, Recipe, TrainPlan, find_recipe, make_recipe, read_recipe

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
    read = written(
        """
        source = "a paper"
        published_acr = 1
        dataset = "npz:some/where.npz"
        architecture = "lenet"
        normalise = false
        inputs = 500
        sigma = 1
        epochs = 7
        batch_size = 64
        lr = 0.1
        momentum = 0.8
        weight_decay = 0
        schedule = "cosine"
        step_epochs = 3
        milestones = [2, 5]
        ramps = ["eta:10", "lr=0.01:5@1"]
        flip = true
        shift = 4
        holdout = 50
        precision = "bfloat16"
        shards = 2
        seed = 11
        [objective]
        name = "smoothmix"
        eta = 1
        one_step = true
        max_norm = 2
        """
    )
    plan = TrainPlan(
        1.0,
        SmoothMix(eta=1.0, one_step=True, max_norm=2.0),
        epochs=7,
        batch_size=64,
        lr=0.1,
        momentum=0.8,
        weight_decay=0.0,
        schedule="cosine",
        step_epochs=3,
        milestones=(2, 5),
        ramps=(Ramp("eta", 10), Ramp("lr", 5, 0.01, 1)),
        flip=True,
        shift=4,
        holdout=50,
        precision="bfloat16",
        shards=2,
        seed=11,
    )
    assert read == Recipe("npz:some/where.npz", plan, "lenet", False, 500, "mine", "a paper", 1.0)


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_what_is_written_reads_back_the_same(name, written):
    changed = TrainPlan(1 / 3, OBJECTIVES[name](), lr=1e-7, ramps=(Ramp("sigma", 3, 1e-9),), milestones=(1,))
    recipe = Recipe('folder:with "quotes" \\ and ü', changed, source="é\n\tσ", name="mine", inputs=3)
    assert written(recipe.to_toml()) == recipe


def test_names_that_are_tables_and_none_are_plain_in_json():
    plain = make_recipe({"dataset": "digits", "sigma": 0.5}, "smoothmix", {"eta": 1.0}).to_json()
    assert (plain["objective"]["name"], plain["objective"]["eta"], plain["objective"]["max_norm"]) == (
        "smoothmix",
        1.0,
        None,
    )
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
    with pytest.raises(DataError, match=r"nowhere\.toml"):
        find_recipe(str(tmp_path / "nowhere.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(DataError, match=r"folder\.toml"):
        find_recipe(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"bytes\.toml"):
        find_recipe(str(tmp_path / "bytes.toml"))


def test_an_unknown_name_is_guessed():
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


@pytest.mark.parametrize(
    "values", [{"epochs": 10}, {"seed": 1}, {"architecture": "small-cnn"}, {"inputs": 100}]
)
def test_a_changed_field_is_no_longer_what_was_published(values):
    changed = published().changed(values)
    assert changed.published_acr is None
    assert (changed.name, changed.source) == ("n", "S")
    ((name, value),) = values.items()
    assert value in (getattr(changed.plan, name, None), getattr(changed, name, None))
    assert changed.plan.objective == Macer(lam=6.0)


def test_a_changed_knob_leaves_the_others():
    changed = published().changed({}, knobs={"gamma": 4})
    assert changed.plan.objective == Macer(lam=6.0, gamma=4.0)
    assert changed.published_acr is None


def test_another_objective_has_its_own_knobs_and_no_ramps_of_the_first():
    changed = published().changed({}, "consistency", {"eta": 1.0})
    assert changed.plan.objective == Consistency(eta=1.0)  # lam isn't macer's 6
    assert changed.plan.ramps == (Ramp("lr", 5),)
    assert changed.published_acr is None
    assert published().changed({}, "gaussian").plan.objective == Gaussian()


def test_another_objective_with_ramps_of_its_own():
    changed = published().changed({"ramps": ["eta:3"]}, "smoothmix")
    assert changed.plan.ramps == (Ramp("eta", 3),)


def test_changes_are_checked():
    with pytest.raises(InvalidValueError, match=r"macer.*'epsilon'.*smoothadv"):
        published().changed({}, knobs={"epsilon": 1.0})
    with pytest.raises(InvalidValueError, match=r"'epoch'.*'epochs'"):
        published().changed({"epoch": 1})
    with pytest.raises(InvalidValueError, match=r"'mace'.*'macer'"):
        published().changed({}, "mace")


def test_a_recipe_from_values_alone():
    made = make_recipe({"dataset": "digits", "sigma": 1, "ramps": ["lam:5"]}, "macer", {"copies": 4})
    assert made == Recipe("digits", TrainPlan(1.0, Macer(copies=4), ramps=(Ramp("lam", 5),)))
    with pytest.raises(InvalidValueError, match="dataset"):
        make_recipe({"sigma": 1.0})
