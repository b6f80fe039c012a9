"""The recipes that come with the package, against the papers' figures written out here."""

import dataclasses
import re
from importlib import resources

from smoothcert.architectures import ARCHITECTURES
from smoothcert.datasets import DATASETS
from smoothcert.training import Ramp, find_recipe, read_recipe, shipped_recipes

RECIPES = shipped_recipes()
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

# Alfarra et al. 2022, at σ = 0.12, 0.25, 0.5
OF_SMALL_NOISE = {
    "cifar10-resnet18-smoothadv": {"attack": "pgd", "epsilon": 0.25, "steps": 2, "copies": 1},
    "cifar10-resnet18-macer": MACER | {"lam": 12.0, "copies": 64},
}


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


def test_every_file_is_listed():
    folder = resources.files("smoothcert.training") / "recipes"
    assert sorted(RECIPES) == sorted(file.name.removesuffix(".toml") for file in folder.iterdir())
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


def chosen(wanted):
    """Recipes whose name is wanted; at least one."""
    found = [(name, recipe, recipe.plan) for name, recipe in RECIPES.items() if wanted(name)]
    assert found
    return found


def test_mnist_is_trained_as_the_papers_share_it():
    for name, recipe, plan in chosen(lambda name: name.startswith("mnist") and "-440" not in name):
        assert (recipe.architecture, plan.epochs, plan.batch_size, plan.lr) == ("lenet", 90, 256, 0.01), name
        assert (plan.schedule, plan.step_epochs, plan.milestones) == ("step", 30, ()), name
        assert (plan.momentum, plan.weight_decay, plan.flip, plan.shift) == (0.9, 1e-4, False, 0), name


def test_cifar_is_trained_as_the_papers_share_it():
    for name, recipe, plan in chosen(
        lambda name: name.startswith("cifar10") and "macer" not in name and "resnet18-smoothadv" not in name
    ):
        depth, epochs = ("cifar_resnet18_7x7", 200) if "resnet18" in name else ("cifar_resnet110", 150)
        assert (recipe.architecture, plan.epochs, plan.batch_size, plan.lr) == (depth, epochs, 256, 0.1), name
        assert (plan.schedule, plan.step_epochs, plan.milestones) == ("step", 50, ()), name
        assert (plan.momentum, plan.weight_decay, plan.flip, plan.shift) == (0.9, 1e-4, True, 4), name


def test_macers_own_schedule():
    """As released: 64 inputs a step, plain momentum, five times the usual weight decay."""
    schedules = {"440": (440, (200, 400)), "150": (150, (60, 120))}
    for epochs, schedule in schedules.items():
        for name, _, plan in chosen(lambda name, part=f"-{epochs}-": "macer-" in name and part in name):
            assert (plan.epochs, plan.milestones) == schedule, name
            assert (plan.lr, plan.inputs_per_step, plan.weight_decay) == (0.01, 64, 5e-4), name
            assert (plan.optimizer, plan.momentum, plan.nesterov) == ("sgd", 0.9, False), name


def test_smoothmix_mnist_runs_of_macer_begin_without_the_hinge():
    """As released: 256 inputs a step, and λ = 0 as long as the learning rate is 0.01."""
    for sigma in SIGMAS:
        plan = RECIPES[f"mnist-macer-{sigma}"].plan
        assert plan.inputs_per_step == 256, sigma
        for epoch in range(plan.epochs):
            settings = plan.at(epoch)
            assert (settings.objective.lam == 0) == (settings.lr == 0.01), (sigma, epoch)


RAMPS = {
    "mnist-smoothadv": (Ramp("epsilon", 10),),
    "cifar10-smoothadv": (Ramp("epsilon", 10),),
    "imagenet-smoothadv": (Ramp("epsilon", 10),),
    "resnet18-smoothadv": (),  # released: a warm-up of one epoch, which is none
    "smoothmix-onestep": (Ramp("eta", 10), Ramp("one_step_norm", 10)),
    "mnist-macer-0": (Ramp("lam", 0, after=30),),
    "mnist-macer-1": (Ramp("lam", 0, after=30),),
    "mnist-macer-440": (),
    "cifar10-macer-150-1.0": (Ramp("lam", 0, after=60),),
    "cifar10-macer-440-1.0": (Ramp("lam", 0, after=200),),
    "gaussian": (),
    "consistency": (),
    "stability": (),
}


def test_what_rises_during_training():
    for part, ramps in RAMPS.items():
        for name, _, plan in chosen(lambda name, part=part: part in name):
            assert plan.ramps == ramps, name


SMALL_SIGMAS = ("0.12", "0.25", "0.5")


def test_data_dependent_papers_train_resnet18_by_all_three_methods():
    for family, expected in OF_SMALL_NOISE.items():
        for name in (f"{family}-{sigma}" for sigma in SMALL_SIGMAS):
            plan, knobs = RECIPES[name].plan, dataclasses.asdict(RECIPES[name].plan.objective)
            assert {knob: knobs[knob] for knob in expected} == expected, name
            assert (plan.epochs, plan.inputs_per_step, plan.lr) == (200, 128, 0.01), name
            assert (plan.weight_decay, plan.flip, plan.shift) == (5e-4, True, 4), name
    assert {f"cifar10-resnet18-gaussian-{sigma}" for sigma in SMALL_SIGMAS} <= set(RECIPES)


def test_data_dependent_papers_train_the_released_network_with_plain_momentum():
    for name, recipe, plan in chosen(lambda name: "resnet18" in name):
        assert recipe.architecture == "cifar_resnet18_7x7", name
        assert (plan.optimizer, plan.nesterov) == ("sgd", False), name


def test_ds2_moves_sigma_after_fifty_of_two_hundred_epochs():
    for sigma in SMALL_SIGMAS:
        plan, fixed = (RECIPES[f"cifar10-resnet18-gaussian-{part}{sigma}"].plan for part in ("ds2-", ""))
        assert (plan.data_dependent, plan.warmup, plan.epochs) == (True, 50, 200), sigma
        assert (plan.sigma_steps, plan.sigma_samples, plan.sigma_lr) == (1, 1, 1e-4), sigma
        assert dataclasses.replace(plan, data_dependent=False, sigma_warmup=None) == fixed, sigma


def test_the_l1_recipe_differs_in_its_noise_alone():
    for sigma in SIGMAS:
        plan, fixed = (RECIPES[f"cifar10-resnet18-gaussian-{part}{sigma}"].plan for part in ("uniform-", ""))
        assert dataclasses.replace(plan, noise="gaussian") == fixed, sigma


def test_photographs_and_house_numbers_are_augmented_as_published():
    for name, recipe in RECIPES.items():
        if recipe.dataset == "imagenet":
            assert (recipe.plan.random_crops, recipe.plan.flip) == (True, True), name
        if recipe.dataset == "svhn":
            assert (recipe.plan.flip, recipe.plan.shift) == (True, 4), name


def test_salmans_rows_are_those_of_macers_tables():
    assert acr("cifar10-smoothadv-salman") == (0.538, 0.709, 0.787)
    assert acr("imagenet-smoothadv-salman") == (0.528, 0.815, 1.003)


def test_imagenet_mixes_with_one_large_step_kept_near_for_the_one_step_adversary():
    """Jeong et al. 2021, appendix F: T = 1, m = 1, α = 8, the example that replaces the input within 1."""
    for sigma in ("0.5", "1.0"):
        objective = find_recipe(f"imagenet-smoothmix-{sigma}").plan.objective
        assert (objective.steps, objective.copies, objective.alpha) == (1, 1, 8.0)
        assert (objective.one_step, objective.one_step_norm) == (True, 1.0)
