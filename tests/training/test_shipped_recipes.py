"""The recipes that come with the package, against the papers' figures written out here."""

import dataclasses
import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.datasets import DATASETS
from smoothcert.training.plan import Ramp
from smoothcert.training.recipe import find_recipe, read_recipe, shipped_recipes

RECIPES = shipped_recipes()
PAPERS = Path(__file__).with_name("published_recipes.toml")
DIGESTS = Path(__file__).with_name("recipe_digests.txt")
SIGMAS = ("0.25", "0.5", "1.0")

SMALL_SIGMAS = ("0.12", "0.25", "0.5")

SHARED = {"batch_size": 256, "schedule": "step", "milestones": (), "momentum": 0.9, "weight_decay": 1e-4}
ON_MNIST = {"epochs": 90, "lr": 0.01, "step_epochs": 30, "flip": False, "shift": 0, "architecture": "lenet"}
ON_CIFAR = {"lr": 0.1, "step_epochs": 50, "flip": True, "shift": 4}
RELEASED = {"architecture": "cifar_resnet18_7x7", "optimizer": "sgd", "nesterov": False}
SMALL = {"epochs": 200, "inputs_per_step": 128, "lr": 0.01, "weight_decay": 5e-4, "flip": True, "shift": 4}
# As released: 64 inputs a step, plain momentum, five times the usual weight decay.
OWN = {
    "lr": 0.01,
    "inputs_per_step": 64,
    "weight_decay": 5e-4,
    "optimizer": "sgd",
    "momentum": 0.9,
    "nesterov": False,
}
DS2 = {
    "data_dependent": True,
    "warmup": 50,
    "epochs": 200,
    "sigma_steps": 1,
    "sigma_samples": 1,
    "sigma_lr": 1e-4,
}
ONE_STEP = (Ramp("eta", 10), Ramp("one_step_norm", 10))

# Fields of the recipes whose names match: as the papers share them, then what a method has of its own.
PUBLISHED = [
    (r"mnist-(?!.*-440)", SHARED | ON_MNIST),
    (
        r"cifar10-(?!.*macer|resnet18|wideresnet)",
        SHARED | ON_CIFAR | {"architecture": "cifar_resnet110", "epochs": 150},
    ),
    (r"cifar10-resnet18-(?!macer|smoothadv)", SHARED | ON_CIFAR | {"epochs": 200}),
    (r"cifar10-resnet18-", RELEASED),
    (r"cifar10-resnet18-(macer|smoothadv)-", SMALL),
    (r"cifar10-resnet18-gaussian-ds2-", DS2),
    (r".*macer-440-", OWN | {"epochs": 440, "milestones": (200, 400)}),
    (r".*macer-150-", OWN | {"epochs": 150, "milestones": (60, 120)}),
    (r"mnist-macer-[01]", {"inputs_per_step": 256, "ramps": (Ramp("lam", 0, after=30),)}),
    (r"mnist-macer-440", {"ramps": ()}),
    (r"cifar10-macer-150-1\.0", {"ramps": (Ramp("lam", 0, after=60),)}),
    (r"cifar10-macer-440-1\.0", {"ramps": (Ramp("lam", 0, after=200),)}),
    (r"(mnist|cifar10|imagenet)-smoothadv", {"ramps": (Ramp("epsilon", 10),)}),
    (r".*resnet18-smoothadv", {"ramps": ()}),  # released: a warm-up of one epoch, which is none
    (r".*smoothmix-(eta1-)?onestep", {"ramps": ONE_STEP}),
    (r".*(gaussian|consistency|stability)", {"ramps": ()}),
    (r"imagenet-", {"random_crops": True, "flip": True}),
    (r"svhn-", {"flip": True, "shift": 4}),
    (r"cifar10-wideresnet-", {"architecture": "wide_resnet40_2", "optimizer": "sgd"}),
]


@pytest.mark.parametrize(("pattern", "expected"), PUBLISHED)
def test_plans_are_the_published_ones(pattern, expected):
    names = [name for name in RECIPES if re.match(pattern, name)]
    assert names
    for name in names:
        recipe = RECIPES[name]
        found = {
            field: getattr(recipe if hasattr(recipe, field) else recipe.plan, field) for field in expected
        }
        assert found == expected, name


def test_every_recipe_says_what_it_is():
    for name, recipe in RECIPES.items():
        words = name.split("-")
        assert recipe.name == name
        assert words[0] == recipe.dataset, name
        assert recipe.plan.objective_name in words, name
        assert words[-1] == str(recipe.plan.sigma), name
        assert recipe.dataset in DATASETS, name
        assert recipe.architecture in ARCHITECTURES, name
        assert re.search(r"\b20\d\d\b", recipe.source), name
        assert any(author in recipe.source for author in ("Jeong", "Zhai", "Alfarra", "Cohen", "Yang")), name
        assert recipe.published_acr is None or 0.3 < recipe.published_acr < 2, name


def test_every_recipe_reads_back_the_same(tmp_path):
    for name, recipe in RECIPES.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(recipe.to_toml(), encoding="utf-8")
        assert read_recipe(path) == recipe, name


def test_every_epoch_of_every_recipe_has_settings():
    for name, recipe in RECIPES.items():
        plan = recipe.plan
        last = [plan.at(epoch) for epoch in range(plan.epochs)][-1]
        assert last.objective == plan.objective, name  # every ramp has reached its end


def digests():
    """A hash of all fields of every recipe: ``python -m tests.training.test_shipped_recipes`` prints the data file."""
    plain = {name: json.dumps({"name": name, **RECIPES[name].to_json()}, sort_keys=True) for name in RECIPES}
    return [f"{name} {hashlib.sha256(plain[name].encode()).hexdigest()[:16]}" for name in RECIPES]


def test_names_and_fields_are_those_of_one_file_for_each_recipe():
    """Commit 7bb0724 had a file for each; a change here is meant, and goes into the changelog."""
    assert digests() == DIGESTS.read_text().splitlines()
    assert find_recipe("mnist-gaussian-0.5") is RECIPES["mnist-gaussian-0.5"]


def test_every_number_is_that_of_the_papers_tables():
    expected, found = {}, {}
    for family, table in tomllib.loads(PAPERS.read_text(encoding="utf-8")).items():
        for place, sigma in enumerate(table["sigma"]):
            recipe = RECIPES[f"{family}-{sigma}"]
            stated = {"acr": table["acr"], **table.get("plan", {}), **table.get("options", {})}
            values = {"acr": recipe.published_acr or "-", **vars(recipe.plan), **vars(recipe.plan.objective)}
            values["milestones"] = list(recipe.plan.milestones)
            lists = {name for name, value in stated.items() if isinstance(value, list)} - {"milestones"}
            expected[recipe.name] = stated | {name: stated[name][place] for name in lists}
            found[recipe.name] = {name: values[name] for name in stated}
            options = {each.name for each in dataclasses.fields(recipe.plan.objective)}
            assert bool(options) == ("options" in table), family
    assert found == expected
    assert set(found) == set(RECIPES)  # none is left out


def test_mnist_runs_of_macer_begin_without_the_hinge():
    """SmoothMix's, as released: λ = 0 as long as the learning rate is 0.01."""
    for sigma in SIGMAS:
        plan = RECIPES[f"mnist-macer-{sigma}"].plan
        for epoch in range(plan.epochs):
            settings = plan.at(epoch)
            assert (settings.objective.lam == 0) == (settings.lr == 0.01), (sigma, epoch)


def test_what_the_papers_compare_differs_in_that_alone():
    for kind, sigmas, otherwise in [
        ("ds2", SMALL_SIGMAS, {"data_dependent": False, "sigma_warmup": None}),
        ("uniform", SIGMAS, {"noise": "gaussian"}),
    ]:
        for sigma in sigmas:
            plan, fixed = (
                RECIPES[f"cifar10-resnet18-gaussian-{part}{sigma}"].plan for part in (f"{kind}-", "")
            )
            assert plan != fixed
            assert dataclasses.replace(plan, **otherwise) == fixed, sigma


if __name__ == "__main__":
    print("\n".join(digests()))
