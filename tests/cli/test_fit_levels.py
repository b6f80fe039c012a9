"""`fit-levels` and what it leaves for `certify --chooser`, as typed."""

import json
import shutil
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.cli.console import View, emit
from smoothcert.cli.levels import _worth
from smoothcert.cli.options import OutputOptions
from smoothcert.experimental.levels.choosers import LevelFitPlan, read_chooser_statement
from smoothcert.experimental.levels.fit import LevelReport
from smoothcert.plain_text import command
from smoothcert.runs.run import read_run

from .output import names, refusal

FEW = ["--inputs", "40", "--validation", "10", "--votes", "16", "--epochs", "1", "--copies", "2"]
LEVELS = ["--sigma-levels", "0.12", "0.25", "0.5"]


@pytest.fixture(scope="module")
def chooser(digits_model, build_once) -> Path:
    words = ["experimental", "levels", str(digits_model), *LEVELS, *FEW, "--quiet", "--out"]
    return build_once("chooser-of-levels", lambda out: main([*words, str(out)]))


def test_the_same_command_again_and_another_one(digits_model, chooser, tmp_path, capsys):
    copy = shutil.copytree(chooser, tmp_path / "copy")
    words = ["experimental", "levels", digits_model, *LEVELS, *FEW, "--out", copy]
    main([str(word) for word in [*words, "--json"]])
    told = json.loads(capsys.readouterr().out)
    assert told["sigma_levels"] == [0.12, 0.25, 0.5]
    assert told["chooser_sigma"] == 0.5
    assert len(told["fixed"]) == len(told["shares"]) == 3
    assert told["inputs"] == 10
    assert told["next"].startswith(command("certify", digits_model))
    assert names(refusal(capsys, *words, "--seed", "1"), "plan.seed", 0, 1)


def test_certify_takes_it_with_its_levels(digits_model, chooser, tmp_path):
    words = ["certify", digits_model, "--chooser", chooser, "--n", "300", "--max", "3", "--quiet"]
    main([str(word) for word in [*words, "--out", tmp_path / "run"]])
    run = read_run(tmp_path / "run")
    assert run.manifest.plan.sigma_levels == [0.12, 0.25, 0.5]
    assert run.manifest.plan.chooser is not None
    assert run.manifest.plan.chooser["sigma"] == 0.5
    assert run.manifest.origin.split != "train"


@pytest.mark.slow
def test_a_model_for_each_level(digits_model, tmp_path, capsys):
    start = ["experimental", "levels", digits_model, "--sigma-levels", "0.12", "0.25"]
    words = [*start, *FEW]
    two = ["--level-models", digits_model, digits_model]
    main([str(word) for word in [*words, *two, "--chooser-sigma", "0.4", "--out", tmp_path / "two"]])
    shown = " ".join(capsys.readouterr().out.split())
    assert names(shown, 10, command("certify", digits_model), "--level-models")
    assert read_chooser_statement(tmp_path / "two") == ((0.12, 0.25), 0.4)
    out = ["--out", tmp_path / "refused"]
    for mistake, named in (
        ([*words, "--level-models", digits_model, "other"], ["--level-models", "other"]),
        ([*words, "--level-models", *[digits_model] * 3], [2, 3]),
        ([*start, "--inputs", "9"], ["validation", 9, 1000, "--validation 2"]),
        (["experimental", "levels", digits_model, "--sigma-levels", "1", "0.5"], ["1, 0.5"]),
        ([*words, "--network", "lenett"], ["'lenett'", "'lenet'"]),
    ):
        assert names(refusal(capsys, *mistake, *out), *named)
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_it_starts_from_a_training_run(digits_model, tmp_path, capsys):
    words = ["experimental", "levels", digits_model, *LEVELS, *FEW, "--quiet", "--out", tmp_path / "tuned"]
    main([str(word) for word in [*words, "--from", digits_model]])
    assert read_chooser_statement(tmp_path / "tuned") == ((0.12, 0.25, 0.5), 0.5)
    assert "start_sha256" in refusal(capsys, *words)


@pytest.mark.parametrize("gain", [0.1, 0.0, -0.1])
def test_it_says_where_one_sigma_is_better(gain, tmp_path, capsys):
    plan = LevelFitPlan(sigmas=(0.25, 0.5))
    report = LevelReport(9, (0.2, 0.5), 0.5 + gain, 0.6, 0.7, (0.25, 0.75), 0.01)
    emit(View({}, _worth(plan, report, "smoothcert certify it")), OutputOptions())
    shown = " ".join(capsys.readouterr().out.split())
    assert ("--chooser constant:1" in shown) == (gain <= 0)
    assert names(shown, "σ = 0.5", f"{gain:+.4f}", "0.0100")
