"""`smoothcert train`: its options are made from the plan and the objectives' knobs, its runs survive a kill."""

import dataclasses
import inspect
import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.cli import main
from smoothcert.cli import train as train_command
from smoothcert.cli.options import OutputOptions
from smoothcert.cli.plan_options import given, options
from smoothcert.cli.train import KnobOptions, PlanOptions, train
from smoothcert.knobs import knob
from smoothcert.objectives import OBJECTIVES, Objective
from smoothcert.runs.side_files import EpochMetrics, read_epochs
from smoothcert.training.plan import TrainPlan
from smoothcert.training.recipe import find_recipe
from smoothcert.training.runs import load_state
from tests.cli.output import refusal
from tests.processes import LIMIT, Command, run_command

KNOBS = {field.name for name in OBJECTIVES for field in dataclasses.fields(OBJECTIVES[name])}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """Small images in a file, as --dataset takes them."""
    path = tmp_path_factory.mktemp("data") / "images.npz"
    numbers = np.random.default_rng(0)
    labels = np.arange(60) % 3
    x = numbers.uniform(0, 0.3, (60, 1, 8, 8)).astype(np.float32) + 0.2 * labels[:, None, None, None]
    np.savez(path, x_train=x[:40], y_train=labels[:40], x_test=x[40:], y_test=labels[40:])
    return f"npz:{path}"


def words(data: str, out: Path, *more: str, epochs: int = 2) -> list[str]:
    common = ["train", data, "--sigma", "0.1", "--epochs", str(epochs), "--batch-size", "16"]
    return [*common, "--out", str(out), *more]


def option_names(fields: list[tuple[str, object, None]]) -> list[str]:
    return [name for name, _, _ in fields]


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


# Options


def test_every_field_of_the_plan_and_every_knob_is_an_option(capsys, monkeypatch):
    in_plan = {field.name for field in dataclasses.fields(TrainPlan)}
    assert set(option_names([*train_command._plan_fields()])) == in_plan - {"objective", "ramps"}
    assert {field.name for field in dataclasses.fields(KnobOptions)} == KNOBS
    monkeypatch.setenv("COLUMNS", "140")
    main(["train", "--help-all"])
    shown = capsys.readouterr().out
    for name in KNOBS | {field.name for field in dataclasses.fields(PlanOptions)}:
        assert f" --{name.replace('_', '-')} " in shown, name
    for switch in ("--no-clip", "--no-one-step", "--no-flip", "--no-normalise"):
        assert switch in shown
    for nonsense in ("--no-lam", "--no-milestones", "--empty-milestones", "--no-attack", "--no-quiet"):
        assert nonsense not in shown
    assert "[consistency 2, macer 16, smoothadv 4, smoothmix 4]" in " ".join(shown.replace("│", " ").split())
    own = set(inspect.signature(train).parameters) - {"plan", "knobs", "output"}
    groups = [
        own,
        *({f.name for f in dataclasses.fields(g)} for g in (PlanOptions, KnobOptions, OutputOptions)),
    ]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert given(PlanOptions()) == given(KnobOptions()) == {}
    assert given(PlanOptions(flip=False, shift=0)) == {"flip": False, "shift": 0}


def test_a_new_objectives_knobs_appear_by_themselves(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Toy(Objective):
        wobble: int | None = knob(None, "how much it wobbles")
        lam: float = knob(9.0, "weight of the wobble")

        def loss(self, *_: object) -> torch.Tensor:
            return torch.zeros(())

    assert "wobble" not in option_names(train_command._knob_fields())
    monkeypatch.setitem(OBJECTIVES._members, "toy", Toy)
    fields = train_command._knob_fields()
    made = options(fields)(KnobOptions)
    assert "wobble" in option_names(fields)
    assert given(made(wobble=3)) == {"wobble": 3}
    helps = {name: kind.__metadata__[0].help for name, kind, _ in fields}
    assert helps["wobble"] == "how much it wobbles \\[toy]"
    assert helps["lam"].endswith("weight of the wobble \\[toy 9.0]")


def test_options_reach_the_recipe(data, tmp_path):
    options = (
        "--objective smoothmix --eta 1 --steps 1 --copies 2 --no-clip --max-norm 2 --ramp eta:3 lr=0.01:2 "
        "--milestones 1 2 --flip --shift 1 --holdout 5 --precision bfloat16 --seed 3 --max 30 --no-normalise --quiet"
    )
    main(words(data, tmp_path, *options.split()))
    recipe = find_recipe(str(tmp_path / "recipe.toml"))
    plan, objective = recipe.plan, recipe.plan.objective
    of_recipe = (recipe.dataset, recipe.inputs, recipe.normalise, recipe.architecture)
    assert of_recipe == (data, 30, False, "small-cnn")
    assert (objective.eta, objective.steps, objective.copies, objective.clip) == (1.0, 1, 2, False)
    assert (objective.max_norm, objective.only_correct) == (2.0, True)
    assert [str(ramp) for ramp in plan.ramps] == ["eta:3", "lr=0.01:2"]
    assert (plan.milestones, plan.flip, plan.shift, plan.holdout) == ((1, 2), True, 1, 5)
    assert (plan.precision, plan.seed, plan.sigma, plan.epochs, plan.batch_size) == (
        "bfloat16",
        3,
        0.1,
        2,
        16,
    )


# Recipes


def test_a_runs_recipe_repeats_it(data, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    macer = ["--objective", "macer", "--copies", "2", "--ramp", "lam:0@1", "--quiet"]
    main(words(data, first, *macer))
    main(["train", "--recipe", str(first / "recipe.toml"), "--quiet", "--out", str(second)])
    assert weights(first) == weights(second)
    assert (first / "recipe.toml").read_bytes() == (second / "recipe.toml").read_bytes()


def test_a_shipped_recipe_on_other_data_with_another_method(data, tmp_path):
    short = ["--epochs", "1", "--architecture", "small-cnn", "--objective", "gaussian", "--quiet"]
    main(["train", data, "--recipe", "mnist-smoothadv-0.5", *short, "--out", str(tmp_path)])
    recipe = find_recipe(str(tmp_path / "recipe.toml"))
    assert (recipe.dataset, recipe.plan.objective_name, recipe.plan.ramps) == (data, "gaussian", ())
    assert (recipe.published_acr, recipe.plan.sigma, recipe.plan.lr) == (None, 0.5, 0.01)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--recipe", "mnist-gausian-0.5"], r"'mnist-gaussian-0\.5'"),
        (["--recipe", "nowhere.toml"], r"nowhere\.toml"),
        (["digits"], r"\bsigma\b"),
        (["--sigma", "0.5"], r"\bdataset\b"),
        (["digits", "--sigma", "-1"], r"sigma.* -1\.0\b"),
        (["digits", "--sigma", "1", "--objective", "mace"], "'macer'"),
        (["digits", "--sigma", "1", "--lam", "3"], "gaussian.*'lam'.*consistency.*macer.*stability"),
        (["digits", "--sigma", "1", "--ramp", "lr"], r"ramp 'lr'.*OPTION\[=START\]:EPOCHS"),
        (["digits", "--sigma", "1", "--max", "0"], r"\b0$"),
        (["digits", "--sigma", "1", "--precision", "float16"], "float16.*CUDA"),
        (["digits", "--sigma", "1", "--shift", "9"], r"shift.*\(8, 8\).*\b9\b"),
        (["digits", "--sigma", "1", "--architecture", "lenett"], "'lenet'"),
        (["digits", "--sigma", "1", "--device", "abacus"], "'abacus'.*--device"),
        (["digits", "--sigma", "1", "--schedule", "cosin"], '--schedule.*"cosine"'),
    ],
)
def test_mistakes(options, named, tmp_path, capsys):
    pytest.importorskip("sklearn")
    assert re.search(named, refusal(capsys, "train", *options, "--out", tmp_path / "run"))
    assert not (tmp_path / "run" / "model.safetensors").exists()


# Runs


def test_the_result_is_said_in_one_way_or_the_other(data, tmp_path, capsys):
    main(words(data, tmp_path / "run", "--json"))
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert answer == {
        "out": str(tmp_path / "run"),
        "epochs": 2,
        "loss": last["loss"],
        "accuracy": last["accuracy"],
    }
    assert last["validated_on"] == "test"
    assert shown.err == ""
    main(words(data, tmp_path / "run"))
    shown = capsys.readouterr()
    assert f"{100 * last['accuracy']:.1f} %" in shown.err
    assert f"smoothcert certify {tmp_path / 'run'} " in shown.err
    assert shown.out == ""
    main(words(data, tmp_path / "run", "--quiet"))
    assert capsys.readouterr() == ("", "")


def test_another_plan_needs_another_place_and_a_damaged_checkpoint_is_named(data, tmp_path, capsys):
    main(words(data, tmp_path, "--quiet"))
    shown = refusal(capsys, *words(data, tmp_path, "--lr", "0.5"))
    assert re.search(r"plan\.lr: \D+0\.01\D+0\.5\b.*--out", shown)
    (tmp_path / "checkpoint.pt").write_bytes(b"garbage")
    assert str(tmp_path / "checkpoint.pt") in refusal(capsys, *words(data, tmp_path))


def test_divergence_ends_with_two_and_keeps_the_last_checkpoint(data, tmp_path, capsys):
    """The rate jumps to something absurd after two epochs."""
    jump = ["--lr", "1e30", "--ramp", "lr=0.01:0@2"]
    shown = refusal(capsys, *words(data, tmp_path / "run", *jump, epochs=4))
    assert all(
        part in shown for part in ("'gaussian'", "epoch 3", "1e+30", "epoch 2 ", f"{tmp_path / 'run'}")
    )
    state = load_state(tmp_path / "run")
    assert state is not None
    assert len(state.history) == 2
    assert all(torch.isfinite(tensor).all() for tensor in state.tensors["model"].values())
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.filterwarnings("ignore")  # tensorboard's own dependencies'
def test_tensorboard_events(data, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    main(words(data, tmp_path / "run", "--tensorboard", "--quiet"))
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert events.name.startswith("events.out.tfevents")
    assert b"accuracy" in events.read_bytes()
    refusal(capsys, *words(data, tmp_path / "run", "--tensorboard", "--seed", "1"))
    assert list((tmp_path / "run" / "tensorboard").iterdir()) == [events]


@pytest.mark.system
def test_killed_in_the_middle_the_same_command_ends_with_the_same_weights(data, tmp_path):
    metrics = tmp_path / "killed" / "metrics.jsonl"
    command = Command(*words(data, tmp_path / "killed", "--quiet", epochs=60))
    deadline = time.monotonic() + LIMIT
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 2:
        assert command.poll() is None, "ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    command.kill()
    assert command.wait().returncode == -signal.SIGKILL
    state = load_state(tmp_path / "killed")
    assert state is not None
    assert 2 <= len(state.history) < 60
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    for name in ("killed", "straight"):
        run_command(*words(data, tmp_path / name, "--quiet", epochs=60), check=True)
    assert weights(tmp_path / "killed") == weights(tmp_path / "straight")
    assert len(metrics.read_text().splitlines()) == 60


def test_the_acr_while_it_trains_and_its_picture(data, tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", data, "--sigma", "0.1", "--epochs", "3", "--out", str(out), "--json"]
    main([*words, "--acr-every", "2", "--acr-inputs", "5", "--acr-votes", "50"])
    told = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert ["acr" in line for line in lines] == [False, True, True]
    assert told["acr"] == lines[-1]["acr"]
    main(["plot", str(out), "--kind", "training", "--out", str(tmp_path / "acr.png")])
    assert (tmp_path / "acr.png").stat().st_size > 1000
    assert re.search(r"acr_every.* 0$", refusal(capsys, *words[:-1], "--acr-every", "0"))
    elsewhere = refusal(capsys, "plot", tmp_path, "--kind", "training", "--out", tmp_path / "acr.png")
    assert "metrics.jsonl" in elsewhere


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int, words: list[str]) -> None:
    """The command, ended from outside when that epoch is on disk."""
    from smoothcert.training import runs

    def write(out: Path, history: tuple[EpochMetrics, ...], kept=runs.write_epochs) -> None:
        kept(out, history)
        if len(history) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runs, "write_epochs", write)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            main(words)


def test_acrs_that_do_not_compare_are_noted_and_said(data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    checked = words(data, out, "--acr-every", "1", "--acr-inputs", "3", epochs=3)
    interrupted(monkeypatch, 2, [*checked, "--acr-votes", "20"])
    capsys.readouterr()
    main([*checked, "--acr-votes", "60"])
    told = capsys.readouterr().err
    assert re.search(r"^warning: .* epoch 2 \D+3\D+20\b.* epoch 3 \D+3\D+60\b", told)
    assert [one.acr_votes for one in read_epochs(out)] == [20, 20, 60]
    assert re.search(rf"{out}: .* ACR 0\.\d+\D+3\D+60\b", told)


@pytest.mark.slow
def test_measuring_a_finished_run_is_not_passed_over(data, tmp_path, capsys):
    out = tmp_path / "run"
    checked = words(data, out, "--acr-every", "1", "--acr-inputs", "3", "--acr-votes", "20")
    main(checked)
    main(checked)
    assert f"warning: {out}" not in capsys.readouterr().err, "it has what was asked for"
    for other in (["--acr-every", "1"], ["--acr-every", "1", "--acr-inputs", "3", "--acr-votes", "21"]):
        main(words(data, out, *other))
        assert re.search(f"^warning: {out} .*--acr-every 1 ", capsys.readouterr().err)
    checked = words(data, tmp_path / "all", "--acr-every", "2", "--acr-inputs", "999", "--acr-votes", "20")
    main([*checked, "--quiet"])
    main(checked)
    assert f"warning: {tmp_path}" not in capsys.readouterr().err, "all there are"


@pytest.mark.parametrize("option", ["--acr-votes", "--acr-inputs"])
def test_how_to_measure_needs_when(option, data, tmp_path, capsys):
    told = refusal(capsys, *words(data, tmp_path / "run", option, "20"))
    assert re.search(f"{option} .*--acr-every", told)
    assert not (tmp_path / "run").exists()


def test_settings_without_effect_are_said_of_what_was_typed(data, tmp_path, capsys):
    main(words(data, tmp_path / "run", "--ramp", "lr:9999999999", "--milestones", "50", "--step-epochs", "3"))
    told = capsys.readouterr().err
    assert re.search(r"^warning: --ramp lr:9999999999\D+2\b", told, re.MULTILINE)
    assert re.search(r"^warning: --milestones\D+50\D+2\b", told, re.MULTILINE)
    assert re.search("^warning: --step-epochs .*--milestones", told, re.MULTILINE)
    main(["train", "--recipe", str(tmp_path / "run" / "recipe.toml"), "--out", str(tmp_path / "again")])
    assert "warning: --" not in capsys.readouterr().err
    told = refusal(capsys, *words(data, tmp_path / "none", "--ramp", "sigma:0@5"))
    assert "sigma:0@5" in told
