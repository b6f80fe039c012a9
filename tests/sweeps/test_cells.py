import itertools

import pytest

from smoothcert.datasets import load
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.runs.statement import Choice
from smoothcert.sweeps import Trial, plan_cells

COMMON = {"dataset": "digits", "epochs": 2}


def test_every_method_at_every_sigma_from_every_seed():
    cells = plan_cells(["gaussian", "smoothmix:eta=1,steps=8"], [0.25, 0.5], [0, 1], COMMON)
    assert [(cell.method, cell.sigma, cell.seed) for cell in cells] == list(
        itertools.product(("gaussian", "smoothmix:eta=1,steps=8"), (0.25, 0.5), (0, 1))
    )
    assert cells[-1].recipe.plan.objective == SmoothMix(eta=1.0, steps=8)
    assert cells[-1].folder == "smoothmix-eta=1-steps=8-sigma0.5-seed1"
    assert all(cell.recipe.plan.epochs == 2 for cell in cells)
    (cell,) = plan_cells(["smoothadv:attack=ddn,clip=false,ddn-gamma=0.1"], [0.5], [0], COMMON)
    assert cell.recipe.plan.objective == SmoothAdv(attack="ddn", clip=False, ddn_gamma=0.1)


def test_recipes_keep_their_own_sigma_and_knobs(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'dataset = "digits"\nsigma = 0.3\n[objective]\nname = "macer"\nlam = 2\n'
    )
    cells = plan_cells(["mnist-smoothmix-1.0", str(tmp_path / "mine.toml")], [], [3], {"epochs": 2})
    assert [(cell.sigma, cell.recipe.dataset, cell.seed) for cell in cells] == [
        (1.0, "mnist", 3),
        (0.3, "digits", 3),
    ]
    assert cells[1].folder == "mine-sigma0.3-seed3"
    assert plan_cells(["mnist-smoothmix-1.0"], [0.5], [0], {})[0].sigma == 0.5


def test_a_recipe_with_other_knobs_and_fields_of_the_plan():
    """MACER's Table 10: the copies change, the inputs a step don't."""
    cells = plan_cells(["mnist-macer-0.5", "mnist-macer-0.5:copies=4,weight-decay=0.1"], [], [0], {})
    plain, changed = (cell.recipe.plan for cell in cells)
    assert (plain.objective.copies, changed.objective.copies) == (16, 4)
    assert (changed.weight_decay, changed.objective.lam) == (0.1, 16.0)
    assert changed.inputs_per_step == plain.inputs_per_step == 256
    assert changed.ramps == plain.ramps
    assert cells[0].recipe.published_acr == 1.5899
    assert cells[1].recipe.published_acr is None
    assert cells[1].folder == "mnist-macer-0.5-copies=4-weight-decay=0.1-sigma0.5-seed0"


def test_ramps_of_a_method_of_the_sweep_and_of_the_recipe():
    common = COMMON | {"ramps": ["lr:1"]}
    cells = plan_cells(
        ["mnist-macer-0.5", "macer:ramp=lam:0@1,copies=2", "mnist-macer-0.5:ramp=lam=1:0@10,ramp=lr=0.1:2"],
        [0.5],
        [0],
        common,
    )
    assert [[str(ramp) for ramp in cell.recipe.plan.ramps] for cell in cells] == [
        ["lam:0@30", "lr:1"],
        ["lr:1", "lam:0@1"],
        ["lam=1:0@10", "lr=0.1:2"],
    ]
    with pytest.raises(InvalidValueError, match=r"'lamb'.*'lam'"):
        plan_cells(["macer:ramp=lamb:0@1"], [0.5], [0], COMMON)


def test_what_makes_no_sense_is_refused_before_anything_is_trained():
    for methods, sigmas, seeds, named in (
        (["gausian"], [0.5], [0], "'gausian'.*'gaussian'"),
        (["macer:lamb=1"], [0.5], [0], "macer.*'lamb'.*'lam'"),
        (["macer:lam"], [0.5], [0], "'macer:lam'.*NAME=VALUE"),
        (["macer:lam=many"], [0.5], [0], r"\blam\b.*'many'"),
        (["gaussian"], [], [0], r"\bsigma\b"),
        (["gaussian"], [0.0], [0], r"sigma.*\b0\.0"),
        ([], [0.5], [0], r"\[\].*\[0\]"),
        (["gaussian"], [0.5], [], r"\['gaussian'\].*\[\]"),
        (["gaussian"], [0.5], [0, 0], r"gaussian-sigma0\.5-seed0"),
        (
            ["gaussian:noise=uniform", "gaussian"],
            [0.25],
            [0],
            r"gaussian:noise=uniform \(ℓ1\).*gaussian \(ℓ2\)",
        ),
        # What is set elsewhere is not thrown away.
        (["gaussian:ramps=lr:3"], [0.25], [0], "gaussian:ramps=lr:3'.*ramp="),
        (["gaussian:sigma=0.5"], [0.25], [0], "gaussian:sigma=0.5'.*--sigmas"),
        (["gaussian:seed=5"], [0.25], [0], "gaussian:seed=5'.*--seeds"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            plan_cells(methods, sigmas, seeds, COMMON)


def test_a_sweep_is_certified_under_the_noise_it_was_trained_with(tmp_path):
    pytest.importorskip("sklearn")
    fields = COMMON | {"epochs": 1, "batch_size": 64}
    (cell,) = plan_cells(["gaussian:noise=uniform"], [0.25], [0], fields)
    trial = Trial({"n": 100, "n0": 10}, Choice(most=2), Execution(workers=1))
    trial.train(cell, tmp_path, load("digits", "train"), load("digits", "test"))
    run = trial.certify(cell, tmp_path, load("digits", "test"))
    assert (run.manifest.plan.noise, run.norm) == ("uniform", "l1")
