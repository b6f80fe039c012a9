"""A training run on disk."""

import dataclasses
import json
import re

import pytest
import torch

from smoothcert.architectures.spec import initialise
from smoothcert.architectures.weights import load_model
from smoothcert.errors import InvalidValueError, OutputError, RunError
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.runs import layout
from smoothcert.runs.manifest import Manifest
from smoothcert.training.loop import TrainingDivergedError
from smoothcert.training.plan import Ramp
from smoothcert.training.recipe import Recipe, find_recipe
from smoothcert.training.runs import default_architecture, load_state, train_into
from tests.training.toys import Diverging, Meeting, flat, halves, numbers, plan, recipe


def contents(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


def weights(out):
    return (out / "model.safetensors").read_bytes()


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_holds_what_was_done_and_the_model(tmp_path):
    history = train_into(tmp_path, recipe(), halves())
    names = ".lock checkpoint.pt metrics.jsonl model.json model.safetensors recipe.toml run.json"
    assert set(contents(tmp_path)) == set(names.split())
    assert metrics(tmp_path) == [each.as_json() for each in history]
    model, spec = load_model(tmp_path)
    again, _ = load_model(tmp_path)
    again.load_state_dict(load_state(tmp_path).tensors["model"])
    assert torch.equal(flat(model), flat(again))
    assert (spec.architecture, spec.input_shape) == ("small-cnn", (1, 8, 8))
    assert spec.classes == ("left", "right", "both")


def test_a_finished_run_does_nothing_but_write_a_lost_model_again(tmp_path):
    history = train_into(tmp_path, recipe(), halves())
    before, steps, epochs = contents(tmp_path), [], []
    told = {"on_step": lambda *call: steps.append(call), "listeners": [epochs.append]}
    assert train_into(tmp_path, recipe(), halves(), **told) == history
    assert contents(tmp_path) == before
    assert steps == epochs == []
    for name in ("model.safetensors", "model.json", "metrics.jsonl"):
        (tmp_path / name).unlink()
    train_into(tmp_path, recipe(), halves())
    assert contents(tmp_path) == before


def interrupted_after(epoch):
    def listener(done):
        if done.epoch == epoch:
            raise KeyboardInterrupt

    return [listener]


@pytest.mark.parametrize("epoch", [1, 2])
def test_interrupted_and_continued_ends_the_same(epoch, tmp_path):
    chosen = recipe(epochs=3)
    straight = train_into(tmp_path / "straight", chosen, halves())
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "run", chosen, halves(), listeners=interrupted_after(epoch))
    assert len(metrics(tmp_path / "run")) == epoch
    assert not (tmp_path / "run" / "model.safetensors").exists()
    history = train_into(tmp_path / "run", chosen, halves())
    assert weights(tmp_path / "run") == weights(tmp_path / "straight")
    assert [each.loss for each in history] == [each.loss for each in straight]
    assert [line["epoch"] for line in metrics(tmp_path / "run")] == [1, 2, 3]


def test_listeners_hear_of_each_epoch_when_it_is_on_disk(tmp_path):
    heard = []

    def listener(done):
        assert load_state(tmp_path).history[-1] == done
        assert metrics(tmp_path)[-1]["epoch"] == done.epoch
        heard.append(done)

    history = train_into(tmp_path, recipe(epochs=3), halves(), listeners=[listener, lambda done: None])
    assert tuple(heard) == history


def test_another_plan_architecture_or_data_is_refused_and_said(tmp_path):
    chosen = recipe(objective=Macer(copies=2))
    train_into(tmp_path, chosen, halves())
    before = contents(tmp_path)
    for changes, named in (
        ({"lr": 0.01}, r"plan\.lr: .*\b0\.05\b.*\b0\.01\b"),
        ({"seed": 1}, r"plan\.seed: .*\b0\b.*\b1\b"),
        ({"epochs": 5}, r"plan\.epochs: .*\b2\b.*\b5\b"),
        ({"shards": 2}, r"plan\.shards: .*\b1\b.*\b2\b"),
        ({"objective": GaussianAugmentation()}, r'plan\.objective: .*"macer".*"gaussian"'),
        ({"objective": Macer(copies=2, lam=6.0)}, r"plan\.objective\.lam: .*\b16\.0.*\b6\.0"),
        ({"ramps": (Ramp("lr", 5),)}, r"plan\.ramps"),
        ({"milestones": (1,)}, r"plan\.milestones"),
        ({"precision": "bfloat16"}, r"plan\.precision"),
        ({"nesterov": False}, r"plan\.nesterov"),
        ({"optimizer": "adam"}, r"plan\.optimizer"),
    ):
        with pytest.raises(RunError, match=named):
            train_into(tmp_path, recipe(**{"objective": Macer(copies=2)} | changes), halves())
    for other, data, named in (
        (dataclasses.replace(chosen, architecture="cifar_resnet20"), halves(), r"model\.architecture"),
        (chosen, halves(49), r"data\.sha256"),
        (dataclasses.replace(chosen, inputs=50), halves(), r"plan\.inputs: .*\bnull\b.*\b50\b"),
    ):
        with pytest.raises(RunError, match=named):
            train_into(tmp_path, other, data)
    assert contents(tmp_path) == before
    assert json.loads((tmp_path / "run.json").read_text())["plan"]["batch_counts"] == "inputs"


def test_options_that_came_later_are_stated_where_they_are_not_what_they_were(tmp_path):
    train_into(tmp_path / "old", recipe(), halves())
    stated = json.loads((tmp_path / "old" / "run.json").read_text())["plan"]
    assert not {"optimizer", "nesterov", "step_factor"} & set(stated)
    train_into(tmp_path / "old", dataclasses.replace(recipe(), source="a paper", published_acr=1.0), halves())
    train_into(tmp_path / "new", recipe(nesterov=False, optimizer="adam"), halves())
    stated = json.loads((tmp_path / "new" / "run.json").read_text())["plan"]
    assert (stated["nesterov"], stated["optimizer"]) == (False, "adam")


@pytest.mark.parametrize("name", ["checkpoint.pt", "model.safetensors"])
def test_what_nobody_knows_the_plan_of_is_neither_continued_nor_replaced(name, tmp_path):
    train_into(tmp_path / "run", recipe(), halves())
    (tmp_path / "other").mkdir()
    (tmp_path / "run" / name).rename(tmp_path / "other" / name)
    before = contents(tmp_path / "other")
    with pytest.raises(RunError, match=rf"{name}.*run\.json.*--out"):
        train_into(tmp_path / "other", recipe(seed=1), halves())
    assert contents(tmp_path / "other") == before


def test_a_run_has_one_writer(tmp_path):
    def second(done):
        before = contents(tmp_path)
        with pytest.raises(RunError, match=re.escape(str(tmp_path))):
            train_into(tmp_path, recipe(), halves())
        assert contents(tmp_path) == before

    assert len(train_into(tmp_path, recipe(), halves(), listeners=[second])) == 2


def test_a_run_goes_on_with_the_threads_it_was_begun_with(tmp_path, monkeypatch):
    used = []

    def stop(_):
        used.append(torch.get_num_threads())
        raise KeyboardInterrupt

    plan = recipe(epochs=2, threads=2)
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path, plan, halves(20), listeners=[stop])
    again = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, threads=None))
    train_into(tmp_path, again, halves(20), listeners=[lambda _: used.append(torch.get_num_threads())])
    assert used == [2, 2]
    assert find_recipe(str(tmp_path / "recipe.toml")).plan.threads == 2
    other = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, threads=3))
    with pytest.raises(RunError, match=r"\b2\b.*\b3\b.*--threads"):
        train_into(tmp_path, other, halves(20))


def test_threads_that_a_run_states_wrongly_are_not_used(tmp_path):
    train_into(tmp_path, recipe(), halves())
    manifest = Manifest.load(tmp_path)
    for stated in ("", "many", "0", "-1", "99999999999999999999"):
        dataclasses.replace(manifest, versions=manifest.versions | {"threads": stated}).save(tmp_path)
        train_into(tmp_path, recipe(threads=1), halves())


def test_the_recipe_in_the_run_repeats_it_to_the_bit(tmp_path):
    ramps = (Ramp("lam", 3, start=1 / 3), Ramp("lr", 2, 0.00123456789))
    chosen = dataclasses.replace(
        recipe(objective=Macer(copies=2), ramps=ramps, flip=True, milestones=(1,), lr=0.0123456789012345),
        architecture=None,
        inputs=40,
    )
    train_into(tmp_path / "first", chosen, halves())
    written = find_recipe(str(tmp_path / "first" / "recipe.toml"))
    assert written.plan == dataclasses.replace(chosen.plan, shards=1, threads=1)
    assert written == dataclasses.replace(chosen, name="recipe", architecture="small-cnn", plan=written.plan)
    train_into(tmp_path / "second", written, halves())
    assert weights(tmp_path / "first") == weights(tmp_path / "second")


def test_the_seed_fixes_the_initial_weights(tmp_path):
    train_into(tmp_path, recipe(seed=5, lr=1e-30, epochs=1), halves())
    model, spec = load_model(tmp_path)
    assert torch.equal(flat(model), flat(initialise(spec, 5)))
    assert not torch.equal(flat(model), flat(initialise(spec, 0)))


def test_only_the_first_inputs_are_trained_on(tmp_path):
    train_into(tmp_path / "limited", dataclasses.replace(recipe(), inputs=20), halves(50))
    train_into(tmp_path / "small", recipe(), halves(50).first(20))
    assert weights(tmp_path / "limited") == weights(tmp_path / "small")
    assert Manifest.load(tmp_path / "limited").data.inputs == 20


def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on(tmp_path, monkeypatch):
    train_into(tmp_path / "straight", recipe(epochs=3), halves())
    write, written = layout.write_atomically, []

    def fills_up(path, content):
        if len(written) == 1:
            raise OutputError("ENOSPC")
        written.append(path)
        write(path, content)

    with monkeypatch.context() as disk:
        disk.setattr(layout, "write_atomically", fills_up)
        with pytest.raises(OutputError, match="ENOSPC"):
            train_into(tmp_path / "run", recipe(epochs=3), halves())
    assert len(load_state(tmp_path / "run").history) == 1
    train_into(tmp_path / "run", recipe(epochs=3), halves())
    assert weights(tmp_path / "run") == weights(tmp_path / "straight")


def test_a_damaged_checkpoint_stops_before_training(tmp_path):
    train_into(tmp_path, recipe(), halves())
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    before = contents(tmp_path)
    with pytest.raises(RunError, match=r"checkpoint\.pt"):
        train_into(tmp_path, recipe(), halves())
    assert contents(tmp_path) == before
    path.unlink()
    train_into(tmp_path, recipe(), halves())
    assert weights(tmp_path) == before["model.safetensors"]


def diverging(calls):
    return recipe(objective=Diverging(calls), epochs=3)  # 4 batches an epoch


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    kept = []
    where = rf"'Diverging'.*\bnan\b.*\b3\b.*\b2\b.*\b4\b.*\b2\b.*{re.escape(str(tmp_path))}"
    keep = [lambda done: kept.append((tmp_path / "checkpoint.pt").read_bytes())]
    with pytest.raises(TrainingDivergedError, match=where):
        train_into(tmp_path, diverging(calls=10), halves(), listeners=keep)
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept[1]
    state = load_state(tmp_path)
    assert len(state.history) == 2
    assert all(torch.isfinite(tensor).all() for tensor in state.tensors["model"].values())
    assert not (tmp_path / "model.safetensors").exists()
    first = tmp_path / "first"
    with pytest.raises(TrainingDivergedError, match=r"\b1\b.*\b2\b.*\b4\b") as caught:
        train_into(first, diverging(calls=2), halves())
    assert str(first) not in str(caught.value), "nothing was saved in the first epoch"
    assert not (first / "checkpoint.pt").exists()


def test_one_rank_writes_and_all_agree(tmp_path):
    chosen, listened = recipe(shards=2), []

    def work(processes):
        told = [lambda done: listened.append(processes.rank)]
        return train_into(tmp_path / "together", chosen, halves(), listeners=told, processes=processes)

    first, second = Meeting(2).run(work)
    assert [each.loss for each in first] == [each.loss for each in second]
    assert listened == [0, 0]
    alone = train_into(tmp_path / "alone", chosen, halves())
    assert [each.loss for each in first] == pytest.approx([each.loss for each in alone], rel=1e-5)


def test_a_network_that_suits_the_inputs(tmp_path):
    suited = {(3, 224, 224): "resnet50", (3, 32, 32): "cifar_resnet20", (1, 28, 28): "lenet"}
    suited |= {(1, 8, 8): "small-cnn", (3, 16, 16): "lenet"}
    assert {shape: default_architecture(shape) for shape in suited} == suited
    with pytest.raises(InvalidValueError, match="small-cnn"):
        train_into(tmp_path, Recipe("numbers", plan()), numbers(10))
