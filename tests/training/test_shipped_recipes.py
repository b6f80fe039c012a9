"""The recipes that come with the package, against the papers' figures written out here."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest

from smoothcert.architectures.base import ARCHITECTURES
from smoothcert.datasets import DATASETS
from smoothcert.training.plan import Ramp
from smoothcert.training.recipe import find_recipe, read_recipe, shipped_recipes

RECIPES = shipped_recipes()
DIGESTS = Path(__file__).with_name("recipe_digests.txt")
SIGMAS = ("0.25", "0.5", "1.0")

# Jeong et al. 2021, Table 5 (five seeds): σ = 0.25, 0.5, 1.0
MNIST_ACR = {
    "gaussian": (0.9108, 1.5581, 1.6184),
    "stability": (0.9152, 1.5719, 1.6341),
    "smoothadv": (0.9322, 1.6872, 1.7786),
    "macer": (0.9201, 1.5899, 1.5950),
    "consistency": (0.9279, 1.6549, 1.7376),
    "smoothmix-eta1": (0.9296, 1.6776, 1.7867),
    "smoothmix-eta1-onestep": (0.9330, 1.6932, 1.8169),
    "smoothmix": (0.9317, 1.6932, 1.8185),
    "smoothmix-onestep": (0.9332, 1.6851, 1.8212),
}

ADV = {"attack": "pgd", "epsilon": 1.0, "steps": 10, "clip": True}
MIX = {"alpha": 1.0, "copies": 4, "only_correct": True, "clip": True, "max_norm": None}
MACER = {"gamma": 8.0, "beta": 16.0, "copies": 16}
CONSISTENCY = {"eta": 0.5, "copies": 2}

# Knobs of each family of recipes at σ = 0.25, 0.5, 1.0
KNOBS = {
    "mnist-stability": [{"lam": 2.0}] * 3,
    "mnist-smoothadv": [ADV | {"copies": 4}] * 3,
    "mnist-macer": [MACER | {"lam": lam} for lam in (16.0, 16.0, 6.0)],
    "mnist-macer-440": [MACER | {"lam": 16.0}] * 3,
    "mnist-consistency": [CONSISTENCY | {"lam": lam} for lam in (10.0, 5.0, 5.0)],
    "mnist-smoothmix": [MIX | {"eta": 5.0, "steps": steps, "one_step": False} for steps in (2, 4, 8)],
    "mnist-smoothmix-onestep": [
        MIX | {"eta": 5.0, "steps": steps, "one_step": True, "one_step_norm": 1.0} for steps in (2, 4, 8)
    ],
    # The published rows of η = 1 at σ = 0.25 were made with 3 steps.
    "mnist-smoothmix-eta1": [MIX | {"eta": 1.0, "steps": steps, "one_step": False} for steps in (3, 4, 8)],
    "mnist-smoothmix-eta1-onestep": [
        MIX | {"eta": 1.0, "steps": steps, "one_step": True, "one_step_norm": 1.0} for steps in (3, 4, 8)
    ],
    "cifar10-stability": [{"lam": lam} for lam in (2.0, 2.0, 1.0)],
    "cifar10-smoothadv": [ADV | {"copies": 8}] * 3,
    "cifar10-macer-150": [MACER | {"lam": lam} for lam in (12.0, 4.0, 12.0)],
    "cifar10-macer-440": [MACER | {"lam": lam} for lam in (12.0, 4.0, 12.0)],
    "cifar10-consistency": [CONSISTENCY | {"lam": lam} for lam in (20.0, 10.0, 10.0)],
    # Zhai et al. 2020, Table 4
    "cifar10-smoothadv-salman": [
        {"attack": "pgd", "epsilon": epsilon, "steps": 10, "copies": copies}
        for epsilon, copies in ((1.0, 8), (2.0, 2), (2.0, 2))
    ],
    "cifar10-smoothmix": [
        {"eta": 5.0, "steps": 4, "alpha": alpha, "copies": 2, "one_step": False} for alpha in (0.5, 1.0, 2.0)
    ],
    "cifar10-smoothmix-onestep": [
        {"eta": 5.0, "steps": 4, "alpha": alpha, "copies": 2, "one_step": True, "one_step_norm": alpha}
        for alpha in (0.5, 1.0, 2.0)
    ],
}

SMALL_SIGMAS = ("0.12", "0.25", "0.5")

# Alfarra et al. 2022, at each of these
OF_SMALL_NOISE = {
    "cifar10-resnet18-smoothadv": {"attack": "pgd", "epsilon": 0.25, "steps": 2, "copies": 1},
    "cifar10-resnet18-macer": MACER | {"lam": 12.0, "copies": 64},
}

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
    (r"cifar10-(?!.*macer|resnet18)", SHARED | ON_CIFAR | {"architecture": "cifar_resnet110", "epochs": 150}),
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
        assert any(author in recipe.source for author in ("Jeong", "Zhai", "Alfarra", "Cohen")), name
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


def acr(family):
    return tuple(RECIPES[f"{family}-{sigma}"].published_acr for sigma in SIGMAS)


def test_mnist_figures_are_those_of_the_table():
    assert {method: acr(f"mnist-{method}") for method in MNIST_ACR} == MNIST_ACR


def test_knobs_are_the_published_ones():
    for family, by_sigma in KNOBS.items():
        for sigma, expected in zip(SIGMAS, by_sigma, strict=True):
            knobs = dataclasses.asdict(RECIPES[f"{family}-{sigma}"].plan.objective)
            assert {name: knobs[name] for name in expected} == expected, (family, sigma)


def test_every_family_with_knobs_is_in_the_table():
    families = {
        name.rpartition("-")[0]
        for name, recipe in RECIPES.items()
        if recipe.dataset in ("mnist", "cifar10") and dataclasses.fields(recipe.plan.objective)
    }
    assert families == set(KNOBS) | set(OF_SMALL_NOISE)


def test_mnist_runs_of_macer_begin_without_the_hinge():
    """SmoothMix's, as released: λ = 0 as long as the learning rate is 0.01."""
    for sigma in SIGMAS:
        plan = RECIPES[f"mnist-macer-{sigma}"].plan
        for epoch in range(plan.epochs):
            settings = plan.at(epoch)
            assert (settings.objective.lam == 0) == (settings.lr == 0.01), (sigma, epoch)


def test_data_dependent_papers_train_resnet18_by_all_three_methods():
    for family, expected in OF_SMALL_NOISE.items():
        for sigma in SMALL_SIGMAS:
            knobs = dataclasses.asdict(RECIPES[f"{family}-{sigma}"].plan.objective)
            assert {knob: knobs[knob] for knob in expected} == expected, (family, sigma)
    assert {f"cifar10-resnet18-gaussian-{sigma}" for sigma in SMALL_SIGMAS} <= set(RECIPES)


@pytest.mark.parametrize(
    ("kind", "sigmas", "otherwise"),
    [
        ("ds2", SMALL_SIGMAS, {"data_dependent": False, "sigma_warmup": None}),
        ("uniform", SIGMAS, {"noise": "gaussian"}),
    ],
)
def test_what_the_papers_compare_differs_in_that_alone(kind, sigmas, otherwise):
    for sigma in sigmas:
        plan, fixed = (RECIPES[f"cifar10-resnet18-gaussian-{part}{sigma}"].plan for part in (f"{kind}-", ""))
        assert plan != fixed
        assert dataclasses.replace(plan, **otherwise) == fixed, sigma


def test_salmans_rows_are_those_of_macers_tables():
    assert acr("cifar10-smoothadv-salman") == (0.538, 0.709, 0.787)
    assert acr("imagenet-smoothadv-salman") == (0.528, 0.815, 1.003)


def test_imagenet_mixes_with_one_large_step_kept_near_for_the_one_step_adversary():
    """Jeong et al. 2021, appendix F: T = 1, m = 1, α = 8, the example that replaces the input within 1."""
    for sigma in ("0.5", "1.0"):
        objective = find_recipe(f"imagenet-smoothmix-{sigma}").plan.objective
        assert (objective.steps, objective.copies, objective.alpha) == (1, 1, 8.0)
        assert (objective.one_step, objective.one_step_norm) == (True, 1.0)


if __name__ == "__main__":
    print("\n".join(digests()))
