"""Data-dependent training: a σ for each example, kept across epochs, checkpoints and processes."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.architectures.weights import load_model
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.objectives import OBJECTIVES
from smoothcert.perturb.uniform import Uniform
from smoothcert.training.batches import BatchShard
from smoothcert.training.loop import train
from smoothcert.training.plan import Ramp, TrainPlan
from smoothcert.training.recipe import Recipe, read_recipe
from smoothcert.training.runs import load_state, train_into
from smoothcert.training.steps import SigmaTable
from tests.training.test_resume import check_same, three_epochs_both_ways
from tests.training.toys import InDouble, Meeting, Recorder, flat, halves, new_model, numbers, plan


def dependent(**changes):
    return plan(**({"data_dependent": True, "sigma_warmup": 0, "sigma_lr": 0.01, "epochs": 2} | changes))


def states_of(model, dataset, chosen, **options):
    states = []
    train(model, dataset, chosen, after_epoch=states.append, **options)
    return states


class Tiny(nn.Module):
    """Logits of one number, as the data set of numbers has them."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.3, -0.3, 0.1]))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("name", OBJECTIVES.names())
class TestEveryObjective:
    def test_trains_with_a_sigma_for_each_example(self, name):
        (first, last) = states_of(new_model(), halves(30), dependent(objective=OBJECTIVES[name](), lr=0.005))
        assert last.tensors["sigmas"].shape == (30,)
        assert (first.tensors["sigmas"] != 0.25).any()
        assert (first.tensors["sigmas"] != last.tensors["sigmas"]).any()
        assert np.isfinite(last.history[-1].loss)

    def test_resumes_to_the_same_bits(self, name, tmp_path):
        chosen = dependent(objective=OBJECTIVES[name](), epochs=3)
        check_same(*three_epochs_both_ways(new_model, chosen, tmp_path))


def test_sigma_is_fixed_during_warm_up():
    first, second, third = states_of(new_model(), halves(20), dependent(epochs=3, sigma_warmup=2))
    assert (first.tensors["sigmas"] == 0.25).all()
    assert (second.tensors["sigmas"] == 0.25).all()
    assert (third.tensors["sigmas"] != 0.25).any()
    plain = new_model()
    train(plain, halves(20), plan(epochs=2))
    warm = new_model()
    warm.load_state_dict(second.tensors["model"])
    assert torch.equal(flat(plain), flat(warm)), "warm-up is plain training to the bit"


def test_only_examples_that_were_seen_move():
    # 20 examples less 3 held out, batches of 16: all 17 are seen; with 4 shards the batch of one is left out.
    (state,) = states_of(new_model(), halves(20), dependent(epochs=1, holdout=3, shards=4))
    assert int((state.tensors["sigmas"] != 0.25).sum()) <= 16
    assert int((state.tensors["sigmas"] == 0.25).sum()) >= 4


def test_as_released_the_step_of_sigma_sees_the_model_in_training_mode():
    """The released code steps σ with batch statistics, which follow; weights get no gradient from it either way."""
    tracked, radii = [], []
    for released in (False, True):
        model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 3)).train()
        nn.init.constant_(model[1].weight, 0.3)
        table = SigmaTable(8, dependent(sigma_lr=1e-4, sigma_training_mode=released))
        shard = BatchShard(0, torch.arange(8.0).reshape(8, 1), torch.zeros(8).long(), 1.0, np.arange(8))
        radii.append(table.step(model, shard, torch.Generator().manual_seed(0)))
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
        assert model.training
        tracked.append(int(model[0].num_batches_tracked))
    assert tracked == [0, 1]
    assert not torch.equal(*radii)


def test_the_objective_gets_each_examples_own_sigma():
    objective = Recorder()
    (state,) = states_of(Tiny(), numbers(12), dependent(epochs=1, batch_size=4, objective=objective))
    table = state.tensors["sigmas"]
    assert len(objective.seen) == 3
    for x, _, noise in objective.seen:
        assert isinstance(noise.sigma, torch.Tensor)
        torch.testing.assert_close(noise.sigma.double(), table[[round(v) for v in x]], rtol=1e-6, atol=0)
    assert len(set(table.tolist())) > 3


def test_the_step_is_the_papers_and_leaves_the_model_alone():
    class Sure(nn.Module):
        def __init__(self):
            super().__init__()
            self.batch_norm = nn.BatchNorm1d(1)

        def forward(self, x):
            inner = 0 * self.batch_norm(x)[:, 0]
            return torch.stack([10 + inner, -10 + inner], 1)

    model = Sure().train()
    before = copy.deepcopy(model.state_dict())
    table = SigmaTable(5, dependent(sigma_lr=1e-4, sigma_steps=3))
    shard = BatchShard(0, torch.rand(2, 1), torch.zeros(2).long(), 1.0, np.array([1, 4]))
    sigma = table.step(model, shard, torch.Generator().manual_seed(0))
    assert sigma == pytest.approx([0.25 + 3e-4 * 2.0537489] * 2, rel=1e-5)  # Φ⁻¹(0.98)
    assert (table.values == 0.25).tolist() == [True, False, True, True, False]
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_gradient_that_is_no_number_moves_nothing_and_sigma_stays_in_range():
    class Odd(nn.Module):
        def forward(self, x):
            bad = torch.sqrt(0 * x[:, 0])
            return torch.stack([5 + bad, -5 + bad], 1)

    shard = BatchShard(0, torch.rand(2, 1), torch.zeros(2).long(), 1.0, np.array([0, 1]))
    table = SigmaTable(2, dependent())
    table.step(Odd(), shard, torch.Generator().manual_seed(0))
    assert table.values.tolist() == [0.25, 0.25]
    table = SigmaTable(12, dependent(sigma_lr=1e6))
    table.step(Tiny(), shard, torch.Generator().manual_seed(0))
    assert set(table.values[:2].tolist()) <= {0.0625, 0.25, 1.0}


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_their_tables_after_each_epoch(ranks):
    chosen = dependent(epochs=2, shards=ranks)
    model = InDouble(new_model())
    alone = states_of(copy.deepcopy(model), halves(27), chosen)

    def work(processes):
        return states_of(copy.deepcopy(model), halves(27), chosen, processes=processes)

    tables = [states[-1].tensors["sigmas"] for states in Meeting(ranks).run(work)]
    assert all(torch.equal(table, tables[0]) for table in tables)
    torch.testing.assert_close(tables[0], alone[-1].tensors["sigmas"], rtol=1e-9, atol=0)


def test_bad_plans_are_named():
    for field, value in (
        ("sigma", 0.0), ("sigma_warmup", 2), ("sigma_warmup", -1), ("sigma_lr", 0.0), ("sigma_samples", 0),
        ("sigma_steps", 0), ("sigma_factor", 1.0),
    ):  # fmt: skip
        with pytest.raises(InvalidValueError, match=rf"\b{field}\b.*{value}"):
            dependent(**{field: value})
    dependent(ramps=(Ramp("lr", 2),))
    with pytest.raises(InvalidValueError, match="sigma"):
        dependent(ramps=(Ramp("sigma", 2),))
    assert TrainPlan(0.25, epochs=200, data_dependent=True).warmup == 50  # a quarter, as published


def recipe_of(**changes):
    return Recipe("halves", dependent(**changes), architecture="small-cnn")


def test_the_recipe_holds_everything(tmp_path):
    train_into(tmp_path / "run", recipe_of(sigma_warmup=None, epochs=4), halves(20))
    read = read_recipe(tmp_path / "run" / "recipe.toml")
    assert (read.plan.data_dependent, read.plan.sigma_warmup, read.plan.sigma_lr) == (True, 1, 0.01)
    assert load_state(tmp_path / "run").tensors["sigmas"].shape == (20,)
    with pytest.raises(RunError, match=r"plan\.sigma_lr.*0\.01.*0\.02"):
        train_into(tmp_path / "run", recipe_of(sigma_lr=0.02, sigma_warmup=None, epochs=4), halves(20))


class TestFineTuning:
    @pytest.fixture
    def finished(self, tmp_path):
        train_into(tmp_path / "first", Recipe("halves", plan(epochs=1), "small-cnn"), halves(20))
        return tmp_path / "first"

    def test_starts_from_the_weights_without_warm_up(self, finished, tmp_path):
        recipe = recipe_of(epochs=1, lr=1e-12, sigma_warmup=None)
        chosen = dataclasses.replace(recipe, start=str(finished), architecture=None)
        train_into(tmp_path / "second", chosen, halves(20))
        before, after = (flat(load_model(path)[0]) for path in (finished, tmp_path / "second"))
        torch.testing.assert_close(after, before)
        assert read_recipe(tmp_path / "second" / "recipe.toml").plan.sigma_warmup == 0
        assert (load_state(tmp_path / "second").tensors["sigmas"] != 0.25).any()

    def test_moves_the_weights_and_other_weights_are_another_run(self, finished, tmp_path):
        chosen, second = dataclasses.replace(recipe_of(), start=str(finished)), tmp_path / "second"
        train_into(second, chosen, halves(20))
        before, after = (flat(load_model(path)[0]) for path in (finished, second))
        assert not torch.equal(before, after)
        train_into(second, chosen, halves(20))  # finished: nothing to do
        with pytest.raises(RunError, match="start_sha256"):
            train_into(second, dataclasses.replace(chosen, start=str(second)), halves(20))

    def test_a_model_of_other_data_or_none_is_refused(self, finished, tmp_path):
        chosen = dataclasses.replace(recipe_of(), start=str(finished))
        with pytest.raises(ModelError, match=r"first.*\(1, 8, 8\).*halves.*\(3, 8, 8\)"):
            train_into(tmp_path / "second", chosen, halves(20, channels=3))
        with pytest.raises(ModelError, match=r"/none\b"):
            train_into(
                tmp_path / "second", dataclasses.replace(chosen, start=str(tmp_path / "none")), halves(20)
            )


def test_under_uniform_noise_the_l1_radius_is_climbed():
    class Sure(nn.Module):
        def forward(self, x):
            return torch.tensor([2.0, 0.0]) + 0 * x

    table = SigmaTable(2, dependent(sigma_lr=1e-2, sigma_steps=1, noise="uniform"))
    shard = BatchShard(0, torch.rand(2, 1), torch.zeros(2).long(), 1.0, np.array([0, 1]))
    sigma = table.step(Sure(), shard, torch.Generator().manual_seed(0))
    # R = √3σ(E_A − E_B), and E_A − E_B = tanh(1) whatever σ is.
    assert sigma == pytest.approx([0.25 + 1e-2 * np.sqrt(3) * np.tanh(1.0)] * 2, rel=1e-6)


def test_the_objective_is_told_that_the_noise_is_uniform():
    objective = Recorder()
    train(Tiny(), numbers(8), plan(epochs=1, noise="uniform", objective=objective))
    assert all(noise.kind is Uniform and noise.sigma == 0.25 for _, _, noise in objective.seen)
    dependently = Recorder()
    train(Tiny(), numbers(8), dependent(epochs=1, noise="uniform", objective=dependently))
    assert all(isinstance(sigma.sigma, torch.Tensor) for _, _, sigma in dependently.seen)
    with pytest.raises(InvalidValueError, match="macer"):
        train(new_model(), halves(20), plan(noise="uniform", objective=OBJECTIVES["macer"]()))
